//! The handlers of requests, by subject: methods of `Server`, one for each type of request.
//!
//! `Server` parses the request, calls its handler and sends the answer. A handler finds the node
//! and the caller's session, calls the VFS, and appends the answer to the body. An error becomes
//! the answer's error number, and then the body is dropped. Handlers run on many threads at once.

mod attr;
mod dir;
mod file;
mod ioctl;
mod name;
mod statfs;
mod xattr;
