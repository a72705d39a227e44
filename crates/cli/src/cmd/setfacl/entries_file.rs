//! ACL entries from a file, one a line: `-M`, `-X` and `--set-file`.
//!
//! `setfacl` reads them before it changes anything. A wrong line is an error with its number.

use std::path::Path;

use crate::app::host_reason;
use crate::interruptible;
use crate::stop::Stop;
use crate::text::escape;

use super::spec::Spec;

/// Reads the entries of a file of the host, or of standard input (`-`). A `#` begins a comment, so
/// that the file may be the output of `getfacl`. The error names the file.
pub(super) fn read(
    file: &Path,
    parse: fn(&str) -> Result<Spec, String>,
    stop: Stop,
) -> Result<Vec<Spec>, String> {
    let name = escape(file.as_os_str().as_encoded_bytes()).into_owned();
    let read = interruptible::read_text(file, stop);
    let text = read.map_err(|error| format!("'{name}': {}", host_reason(&error)))?;
    let mut specs = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let entry = line.split('#').next().unwrap_or_default().trim();
        if !entry.is_empty() {
            specs.push(parse(entry).map_err(|error| format!("{name}:{number}: {error}"))?);
        }
    }
    Ok(specs)
}
