//! Tests of recovery and of transactions. Recovery is compared with journals built here block by
//! block, with the kernel and with e2fsck. Transactions are checked by recovery, by a model and by
//! e2fsck.

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
