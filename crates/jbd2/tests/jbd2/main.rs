//! Recovery, judged by journals made here block by block, and by the kernel and e2fsck; and transactions, judged by
//! recovery, by a model and by e2fsck.

mod commits;
mod crashes;
mod damage;
mod fast_commit;
mod former;
mod hostile;
mod kernel;
mod log;
mod oracle;
mod synthetic;
mod world;
mod written;
