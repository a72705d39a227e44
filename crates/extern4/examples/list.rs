//! Lists everything in an image with size and owner: `cargo run --example list -- IMAGE [PATH]`.

use extern4::{Result, Volume};

fn main() -> Result<()> {
    let mut args = std::env::args_os().skip(1);
    let image = args.next().expect("usage: list IMAGE [PATH]");
    let path = args.next().unwrap_or_else(|| "/".into());
    let session = Volume::open(image)?.superuser();
    for entry in session.walk(path).with_metadata() {
        let entry = entry?;
        let metadata = entry.metadata()?;
        println!(
            "{:o} {:>6} {:>10} {}",
            metadata.mode(),
            metadata.uid(),
            metadata.len(),
            entry.path().display()
        );
    }
    Ok(())
}
