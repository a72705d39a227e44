//! The subcommands: one module each, with its arguments and its function `run`.
//!
//! `args` parses the arguments and calls `run` with the [`App`](crate::app::App). A subcommand
//! reports a failure at its path and goes on with the rest. It returns an error only if it cannot
//! write its output.

pub(crate) mod bench;
pub(crate) mod block;
pub(crate) mod build;
pub(crate) mod cat;
pub(crate) mod chattr;
pub(crate) mod check;
pub(crate) mod chgrp;
pub(crate) mod chmod;
pub(crate) mod chown;
pub(crate) mod cmp;
pub(crate) mod completions;
pub(crate) mod cp;
pub(crate) mod df;
pub(crate) mod diff;
pub(crate) mod du;
pub(crate) mod export;
pub(crate) mod find;
pub(crate) mod get;
pub(crate) mod getfacl;
pub(crate) mod getfattr;
pub(crate) mod grep;
pub(crate) mod head;
pub(crate) mod help;
pub(crate) mod info;
pub(crate) mod inode;
pub(crate) mod ln;
pub(crate) mod ls;
pub(crate) mod lsattr;
pub(crate) mod man;
pub(crate) mod mkdir;
pub(crate) mod mkfifo;
pub(crate) mod mkfs;
pub(crate) mod mknod;
pub(crate) mod mount;
pub(crate) mod mv;
pub(crate) mod put;
pub(crate) mod quota;
pub(crate) mod readlink;
pub(crate) mod recover;
pub(crate) mod rm;
pub(crate) mod rmdir;
pub(crate) mod script;
pub(crate) mod setfacl;
pub(crate) mod setfattr;
pub(crate) mod sha256sum;
pub(crate) mod shell;
pub(crate) mod stat;
pub(crate) mod stats;
pub(crate) mod tail;
pub(crate) mod tar;
pub(crate) mod top;
pub(crate) mod touch;
pub(crate) mod tree;
pub(crate) mod truncate;
pub(crate) mod tune;
pub(crate) mod umount;
