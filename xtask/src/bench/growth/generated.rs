//! A tree of many empty files that is on no disk: a volume is built from it at once.

use std::ffi::CString;
use std::path::Path;

use extern4::build::{
    BuildOptions, Builder, Contents, Data, Entry, Kind, Opened, Sink, Source, SourceError, Time,
};

use super::super::Result;

/// Files in a directory, and directories in one.
const WIDTH: u64 = 100;

/// The tree with this number of files.
pub(in crate::bench) struct Generated {
    files: u64,
}

impl Generated {
    /// Builds a volume from the tree, and writes the list of its paths.
    pub(in crate::bench) fn build(files: u64, image: &Path, list: &Path) -> Result<()> {
        let tree = Self { files };
        let paths: Vec<u8> = tree
            .entries()
            .flat_map(|entry| [b"/", &entry.path[..], b"\0"].concat())
            .collect();
        std::fs::write(list, paths).map_err(|e| format!("{}: {e}", list.display()))?;
        let mut builder = Builder::new(BuildOptions::default());
        builder
            .add(Box::new(tree), b"")
            .map_err(|e| e.to_string())?;
        let planned = builder.plan().map_err(|e| e.to_string())?;
        planned
            .write_file(image, true, 2)
            .map(drop)
            .map_err(|e| e.to_string())
    }

    /// A directory comes before its entries.
    fn entries(&self) -> impl Iterator<Item = Entry> {
        (0..self.files).flat_map(|file| {
            let inner = file / WIDTH;
            let outer = file / WIDTH / WIDTH;
            let outer_path = format!("directory-{outer}");
            let inner_path = format!("{outer_path}/part-{inner}");
            let path = format!("{inner_path}/file-{file}");
            let outer = file
                .is_multiple_of(WIDTH * WIDTH)
                .then(|| entry(outer_path, Kind::Directory));
            let inner = file
                .is_multiple_of(WIDTH)
                .then(|| entry(inner_path, Kind::Directory));
            let empty = Contents {
                size: 0,
                data: Data::Stored { position: 0 },
            };
            outer
                .into_iter()
                .chain(inner)
                .chain([entry(path, Kind::File(empty))])
        })
    }
}

impl Source for Generated {
    fn scan(&self, sink: &mut dyn Sink) -> std::result::Result<(), SourceError> {
        self.entries().try_for_each(|entry| sink.entry(entry))
    }

    fn open(&self, _: &[u8], _: &Contents) -> std::result::Result<Opened, SourceError> {
        Ok(Opened::other(std::sync::Arc::new(Vec::new())))
    }
}

fn entry(path: String, kind: Kind) -> Entry {
    let mode = if kind == Kind::Directory {
        0o755
    } else {
        0o644
    };
    let mtime = Time {
        secs: 1_700_000_000,
        nanos: 0,
    };
    let path = path.into_bytes();
    Entry {
        path,
        kind,
        mode,
        uid: 0,
        gid: 0,
        mtime,
        xattrs: Vec::new(),
        flags: None,
        project: None,
    }
}

/// The names of a large directory.
pub(super) fn name(number: u64) -> CString {
    CString::new(format!("name-{number}")).expect("no zero byte")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::paths;

    #[test]
    fn a_volume_has_all_paths_of_the_list() {
        let folder = std::env::temp_dir().join(format!("extern4-generated-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a directory");
        let image = folder.join("image");
        let list = folder.join("list");
        Generated::build(250, &image, &list).expect("a volume");
        let paths = paths::read(&list).expect("a list");
        // 250 files, three directories that hold them, and one that holds these.
        assert_eq!(paths.len(), 254);
        let session = extern4::Volume::open(&image).expect("it opens").superuser();
        for path in paths {
            let path = path.into_string().expect("UTF-8");
            assert_eq!(
                session
                    .symlink_metadata(&path)
                    .map(|found| found.is_file())
                    .ok(),
                Some(path.contains("file"))
            );
        }
        std::fs::remove_dir_all(&folder).expect("it is there");
    }
}
