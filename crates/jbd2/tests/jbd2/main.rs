//! Recovery, judged by journals made here block by block, and by the kernel and e2fsck.

mod damage;
mod fast_commit;
mod hostile;
mod kernel;
mod log;
mod oracle;
mod synthetic;
