//! ACL entries from a file, one a line: `-M`, `-X` and `--set-file`.
//!
//! `setfacl` reads them before it changes anything. A wrong line is an error with its number.

use std::io::Read as _;
use std::path::Path;

use crate::app::host_reason;
use crate::standard_input;
use crate::text::escape;

use super::spec::Spec;

/// Reads the entries of a file of the host, or of standard input (`-`). A `#` begins a comment, so
/// that the file may be the output of `getfacl`. The error names the file.
pub(super) fn read(file: &Path, parse: fn(&str) -> Result<Spec, String>) -> Result<Vec<Spec>, String> {
    let name = escape(file.as_os_str().as_encoded_bytes()).into_owned();
    let mut text = String::new();
    let read = if file == Path::new("-") {
        standard_input::open().and_then(|mut input| input.read_to_string(&mut text)).map(drop)
    } else {
        std::fs::read_to_string(file).map(|read| text = read)
    };
    read.map_err(|error| format!("'{name}': {}", host_reason(&error)))?;
    let mut specs = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let entry = line.split('#').next().unwrap_or_default().trim();
        if !entry.is_empty() {
            specs.push(parse(entry).map_err(|error| format!("{name}:{number}: {error}"))?);
        }
    }
    Ok(specs)
}
