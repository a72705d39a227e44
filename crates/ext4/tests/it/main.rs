//! The file system against real images: what it shows is compared with what the kernel's mount or
//! `debugfs` shows, and damage is refused by name. Every image of the zoo is compared whole in the
//! tests of the library; here are a few.

mod answers;
mod attribute_races;
mod attributes;
mod checksum_rewrite;
mod contents;
mod crash;
mod damage;
mod data_journal;
mod deadlocks;
mod encryption;
mod faults;
mod former;
mod fsx;
mod full;
mod full_maps;
mod hostile;
mod lazy_times;
mod links;
mod memory;
mod mmp;
mod model;
mod names;
mod open;
mod orphans;
mod overwrites;
mod power;
mod quota;
mod record_size;
mod recovery;
mod removal;
mod reserve;
mod sharing;
mod side_by_side;
mod synchronous;
mod threads;
mod times;
mod trim;
mod turns;
mod walk;
mod watchdog;
mod windows;
mod zoo;
