//! The pages that a registry shows for published crates.

use std::fs;
use std::path::Path;

/// The fields of a manifest that a page shows.
const FIELDS: &[&str] = &[
    "description",
    "documentation",
    "readme",
    "keywords",
    "categories",
];

/// The most words of a page, which leads to the documentation and does not repeat it.
const MOST_WORDS: usize = 250;

/// Reports each field that the page of a published crate needs and its manifest lacks, and a page
/// without a text. `dir` is the crate's directory.
pub(crate) fn check(dir: &Path, manifest: &str, faults: &mut Vec<String>) {
    let package = manifest.split("\n[").next().unwrap_or_default();
    let has = |field: &str| {
        package
            .lines()
            .any(|line| line.split([' ', '=', '.']).next() == Some(field))
    };
    if has("publish") {
        return;
    }
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    for field in FIELDS.iter().filter(|field| !has(field)) {
        faults.push(format!(
            "crates/{name}/Cargo.toml has no {field}, which a published crate needs"
        ));
    }
    let page = fs::read_to_string(dir.join("README.md")).unwrap_or_default();
    if !page.contains("Licence: ") || page.split_whitespace().count() > MOST_WORDS {
        faults.push(format!(
            "crates/{name}/README.md is no page of {MOST_WORDS} words with the licence"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_without_its_fields_is_found() {
        let dir = std::env::temp_dir().join(format!("extern4-pages-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory");
        let faults = |manifest: &str, page: &str| {
            fs::write(dir.join("README.md"), page).expect("a page");
            let mut faults = Vec::new();
            check(&dir, manifest, &mut faults);
            faults.len()
        };
        let lines: Vec<_> = FIELDS
            .iter()
            .map(|field| format!("{field} = \"\""))
            .collect();
        let whole = format!("[package]\n{}\n", lines.join("\n"));
        assert_eq!(faults(&whole, "Licence: MIT"), 0);
        assert_eq!(faults(&whole, "a page"), 1);
        assert_eq!(faults(&whole, &"Licence: MIT ".repeat(200)), 1);
        assert_eq!(
            faults(&whole.replace("keywords", "words"), "Licence: MIT"),
            1
        );
        // A field of another section is none of the package.
        assert_eq!(faults("[package]\npublish = false\n", ""), 0);
        assert_eq!(
            faults(
                &format!("[package]\n[other]\n{}", lines.join("\n")),
                "Licence: "
            ),
            FIELDS.len()
        );
        fs::remove_dir_all(&dir).expect("it goes");
    }
}
