//! Checks the volume in an image and prints what is wrong with it.

use std::sync::Arc;

use extern4_block::FileDevice;
use extern4_check::{Options, check};
use extern4_ext4::{Ext4, OpenOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for image in std::env::args_os().skip(1) {
        let fs = Ext4::open(Arc::new(FileDevice::open(&image)?), &OpenOptions::default())?;
        let summary = check(&fs, &Options::default(), &mut |fault| println!("{fault}"))?;
        println!("{}: {summary:?}", image.display());
    }
    Ok(())
}
