//! Changes directories whose names are inside their inode (`inline_data`).
//!
//! Their names are two chains of records. One is in `i_block`, after the number of the parent. The
//! other is in the attribute `system.data`, which grows by the size of each name while the inode
//! has room. When it has none, the names move to a block, and never back.
//!
//! Only `insert` calls these functions, under the lock on the directory's names and in a handle. A
//! function that reports "no room" has changed nothing.

use extern4_disk::dirent::{DirEntry, Entries, FileType, Layout, Slots};
use extern4_disk::inline::HEAD_SIZE;
use extern4_disk::{Place, Structure};
use extern4_vfs::Errno;

use crate::dir::block_edit::{DOT_LEN, append_dir_block, edit_names, encode_dots};
use crate::dir::namei::SearchName;
use crate::dir_entries::{self, RecordPosition};
use crate::error::Result;
use crate::fs::Ext4;
use crate::handle::Handle;
use crate::inline::change::{clear_inline_data, set_inline_data};
use crate::inode::info::InodeInfo;

/// The offset of the first chain, after the number of the parent.
const FIRST_CHAIN: usize = 4;

/// The contents of a directory: `i_block`, followed by the attribute's value.
struct InlineContents {
    bytes: Vec<u8>,
    layout: Layout,
    place: Place,
}

/// A record in one of the chains.
struct InlineEntry {
    /// The start and the end of its chain in the contents.
    chain: (usize, usize),
    record: RecordPosition,
    ino: u32,
}

impl InlineContents {
    fn chains(&self) -> [(usize, usize); 2] {
        [(FIRST_CHAIN, HEAD_SIZE), (HEAD_SIZE, self.bytes.len())]
    }

    fn slots(&self, (start, end): (usize, usize)) -> Slots<'_> {
        Slots::without_tail(&self.bytes[start..end], &self.layout, self.place)
    }

    fn entries(&self) -> impl Iterator<Item = ((usize, usize), <Entries<'_> as Iterator>::Item)> {
        self.chains().into_iter().flat_map(move |chain| {
            let bytes = &self.bytes[chain.0..chain.1];
            Entries::without_tail(bytes, &self.layout, self.place).map(move |entry| (chain, entry))
        })
    }

    fn find(&self, wanted: &SearchName<'_>) -> Result<InlineEntry> {
        for chain in self.chains() {
            let found = dir_entries::find(self.slots(chain), |entry| wanted.matches(entry.name))?;
            if let Some((record, entry)) = found {
                return Ok(InlineEntry {
                    chain,
                    record,
                    ino: entry.ino,
                });
            }
        }
        Err(Errno::ENOENT.into())
    }

    /// Puts an entry into the first gap, or after all others if there is none.
    fn add(&mut self, entry: &DirEntry<'_>) -> Result<()> {
        let need = self.layout.rec_len(entry.name);
        for chain in self.chains() {
            if let Some(gap) = dir_entries::find_gap(&self.slots(chain), 0, need)? {
                dir_entries::fill_gap(&mut self.bytes[chain.0..chain.1], gap, entry, &self.layout);
                return Ok(());
            }
        }
        let end = self.bytes.len();
        self.bytes.resize(end + need, 0);
        entry.encode(&mut self.bytes[end..], &self.layout);
        Ok(())
    }
}

/// Whether the inode has room for one more name.
pub(crate) fn has_inline_room(fs: &Ext4, dir: &InodeInfo, name: &[u8]) -> Result<bool> {
    let mut contents = inline_contents(fs, dir)?;
    contents.add(&DirEntry {
        ino: dir.ino(),
        kind: FileType::Unknown,
        name,
        offset: 0,
        hash: None,
    })?;
    Ok(dir
        .inline_room(fs)?
        .is_some_and(|room| contents.bytes.len() <= room))
}

fn inline_contents(fs: &Ext4, dir: &InodeInfo) -> Result<InlineContents> {
    dir.with_inline_dir(fs, |inline, layout, place| {
        let (head, tail) = inline.parts();
        let bytes = [&inline.parent.to_le_bytes(), head, tail].concat();
        Ok(InlineContents {
            bytes,
            layout: *layout,
            place,
        })
    })
}

/// Makes a new directory inline. Returns false if its inode has no room.
pub(crate) fn new_inline_directory(
    handle: &Handle<'_>,
    dir: &mut InodeInfo,
    parent: u32,
) -> Result<bool> {
    let mut bytes = [0; HEAD_SIZE];
    bytes[..FIRST_CHAIN].copy_from_slice(&parent.to_le_bytes());
    dir_entries::free_record(&mut bytes[FIRST_CHAIN..]);
    set_inline_data(handle, dir, &bytes)
}

/// Adds an entry. Returns false, without a change, if the inode has no room for it.
pub(crate) fn add_inline(
    handle: &Handle<'_>,
    dir: &mut InodeInfo,
    entry: &DirEntry<'_>,
) -> Result<bool> {
    let mut contents = inline_contents(handle.fs, dir)?;
    contents.add(entry)?;
    set_inline_data(handle, dir, &contents.bytes)
}

/// Moves the names of a directory to a block.
pub(crate) fn move_to_block(handle: &Handle<'_>, dir: &mut InodeInfo) -> Result<()> {
    let contents = inline_contents(handle.fs, dir)?;
    let entries = contents
        .entries()
        .map(|(_, entry)| entry)
        .collect::<Result<Vec<_>, _>>()?;
    let parent = dir.with_inline_dir(handle.fs, |inline, _, _| Ok(inline.parent))?;
    dir.fields_mut().set_size(0);
    clear_inline_data(handle, dir)?;
    let (_, mut block) = append_dir_block(handle, dir)?;
    edit_names(handle, dir, &mut block, |bytes, layout| {
        encode_dots(bytes, dir.ino(), parent, layout);
        if !entries.is_empty() {
            dir_entries::set_rec_len(bytes, DOT_LEN, DOT_LEN);
            dir_entries::fill(&mut bytes[2 * DOT_LEN..], &entries, layout);
        }
    });
    Ok(())
}

/// Removes a name, and returns its inode.
pub(crate) fn remove_inline(
    handle: &Handle<'_>,
    dir: &mut InodeInfo,
    wanted: &SearchName<'_>,
) -> Result<u32> {
    let mut contents = inline_contents(handle.fs, dir)?;
    let InlineEntry { chain, record, ino } = contents.find(wanted)?;
    dir_entries::remove(&mut contents.bytes[chain.0..chain.1], record);
    store_contents(handle, dir, &contents)?;
    Ok(ino)
}

/// Makes a name refer to another inode.
pub(crate) fn replace_inline(
    handle: &Handle<'_>,
    dir: &mut InodeInfo,
    wanted: &SearchName<'_>,
    ino: u32,
    kind: FileType,
) -> Result<()> {
    let mut contents = inline_contents(handle.fs, dir)?;
    let InlineEntry { chain, record, .. } = contents.find(wanted)?;
    let layout = contents.layout;
    dir_entries::replace(
        &mut contents.bytes[chain.0..chain.1],
        record,
        ino,
        kind,
        &layout,
    );
    store_contents(handle, dir, &contents)
}

/// Makes `..` refer to another directory.
pub(crate) fn set_inline_parent(
    handle: &Handle<'_>,
    dir: &mut InodeInfo,
    parent: u32,
) -> Result<()> {
    let mut contents = inline_contents(handle.fs, dir)?;
    contents.bytes[..FIRST_CHAIN].copy_from_slice(&parent.to_le_bytes());
    store_contents(handle, dir, &contents)
}

/// Stores contents that are not longer than before.
fn store_contents(
    handle: &Handle<'_>,
    dir: &mut InodeInfo,
    contents: &InlineContents,
) -> Result<()> {
    if set_inline_data(handle, dir, &contents.bytes)? {
        Ok(())
    } else {
        let what = "the inode's attributes leave no room for the names that it has";
        let place = Place::new(Structure::InlineData).ino(dir.ino());
        Err(place
            .corrupt(extern4_disk::CorruptKind::Mismatch { what })
            .into())
    }
}
