//! Tar archives: read from a file in place and from a stream, alike. Entries survive writing.
#![no_main]

use std::io::Write;

use extern4_fuzz::archive::Recipe;
use extern4_fuzz::tree::{Entries, SPOOL, survives};
use extern4_tree::{Source, TarSource};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let archive = Recipe(data).archive();
    let mut file = tempfile::tempfile_in(SPOOL).expect("a temporary file");
    file.write_all(&archive).expect("memory");
    let in_place = TarSource::from_file(file, "tar", SPOOL).expect("a file");
    let mut found = Entries::default();
    let result = in_place.scan(&mut found);
    let stream = TarSource::from_stream(std::io::Cursor::new(archive), "tar", SPOOL);
    let mut spooled = Entries::default();
    let other = stream.scan(&mut spooled);
    assert_eq!(result.is_ok(), other.is_ok());
    assert_eq!(found.0.len(), spooled.0.len());
    survives(&in_place, &found.0);
    survives(&stream, &spooled.0);
    // The bytes themselves, as an archive that is perhaps compressed.
    let raw = TarSource::from_stream(std::io::Cursor::new(data.to_vec()), "tar", SPOOL);
    let _ = raw.scan(&mut Entries::default());
});
