//! Members of an archive that a caller chooses.

use std::fmt;
use std::sync::Arc;

use extern4_sync::primitive::{AtomicBool, Ordering};
use extern4_tree::{Contents, Entry, Filter, Kind, Opened, Result, Sink, Source, TarSource};

use super::name::member_name;

/// A choice of members: those with some names and all below them, except what rules leave out.
#[derive(Debug, Default)]
pub struct Members {
    /// The names, and whether a member with each was seen.
    names: Vec<(Vec<u8>, AtomicBool)>,
    filter: Filter,
}

impl Members {
    /// Chooses the members with these names and all below them, or all members if there are no
    /// names. The names are taken as [`member_name`] returns them.
    pub fn new(names: impl IntoIterator<Item = impl AsRef<[u8]>>, filter: Filter) -> Self {
        let names = names
            .into_iter()
            .map(|name| (member_name(name.as_ref()), AtomicBool::new(false)));
        Self {
            names: names.collect(),
            filter,
        }
    }

    /// Returns whether a member is chosen, and remembers the names that chose it.
    pub fn has(&self, entry: &Entry) -> bool {
        let path = &*entry.path;
        let above = (0..path.len())
            .filter(|at| path[*at] == b'/')
            .map(|at| (&path[..at], true));
        let mut paths = above.chain([(path, entry.kind == Kind::Directory)]);
        if paths.any(|(path, is_directory)| self.filter.leaves_out(path, is_directory)) {
            return false;
        }
        let is_in = |name: &[u8]| {
            path.strip_prefix(name)
                .is_some_and(|rest| name.is_empty() || rest.is_empty() || rest.starts_with(b"/"))
        };
        let mut is_chosen = self.names.is_empty();
        for (_, found) in self.names.iter().filter(|(name, _)| is_in(name)) {
            // Relaxed: the flag guards no other data.
            found.store(true, Ordering::Relaxed);
            is_chosen = true;
        }
        is_chosen
    }

    /// Returns the names that chose no member so far.
    pub fn missing(&self) -> impl Iterator<Item = &[u8]> {
        // Relaxed: see `has`.
        self.names
            .iter()
            .filter(|(_, found)| !found.load(Ordering::Relaxed))
            .map(|(name, _)| &**name)
    }
}

/// Called with a member.
type OnMember = Box<dyn Fn(&Entry) + Send + Sync>;

/// The chosen members of an archive as a source of builds and updates.
pub struct ChosenMembers {
    archive: TarSource,
    members: Arc<Members>,
    strip: usize,
    on_member: Option<OnMember>,
}

impl ChosenMembers {
    /// Takes the members of an archive that `members` chooses.
    pub fn new(archive: TarSource, members: Arc<Members>) -> Self {
        Self {
            archive,
            members,
            strip: 0,
            on_member: None,
        }
    }

    /// Removes this number of names from the start of each path. A member with no more names is
    /// left out.
    pub fn strip_components(mut self, count: usize) -> Self {
        self.strip = count;
        self
    }

    /// Calls a function with each member that was taken, as the archive has it.
    pub fn on_member(mut self, call: impl Fn(&Entry) + Send + Sync + 'static) -> Self {
        self.on_member = Some(Box::new(call));
        self
    }
}

impl fmt::Debug for ChosenMembers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChosenMembers")
            .field("members", &self.members)
            .field("strip", &self.strip)
            .finish_non_exhaustive()
    }
}

impl Source for ChosenMembers {
    fn scan(&self, sink: &mut dyn Sink) -> Result<()> {
        self.archive.scan(&mut Choosing { chosen: self, sink })
    }

    fn open(&self, path: &[u8], contents: &Contents) -> Result<Opened> {
        self.archive.open(path, contents)
    }
}

/// Passes on the chosen members.
struct Choosing<'a> {
    chosen: &'a ChosenMembers,
    sink: &'a mut dyn Sink,
}

impl Sink for Choosing<'_> {
    fn entry(&mut self, mut entry: Entry) -> Result<()> {
        let ChosenMembers {
            members,
            strip,
            on_member,
            ..
        } = self.chosen;
        if !members.has(&entry) {
            return Ok(());
        }
        let Some(path) = stripped(&entry.path, *strip) else {
            return Ok(());
        };
        let told = on_member.as_ref().map(|call| (call, entry.clone()));
        entry.path = path;
        if let Kind::HardLink(target) = &mut entry.kind {
            *target = stripped(target, *strip).unwrap_or_default();
        }
        self.sink.entry(entry)?;
        if let Some((call, member)) = told {
            call(&member);
        }
        Ok(())
    }

    fn remove(&mut self, path: &[u8]) -> Result<()> {
        self.sink.remove(path)
    }

    fn clear(&mut self, path: &[u8]) -> Result<()> {
        self.sink.clear(path)
    }

    fn warn(&mut self, message: String) {
        self.sink.warn(message);
    }
}

/// Returns a path without its first `count` names; `None` if it has no more than those.
fn stripped(path: &[u8], count: usize) -> Option<Vec<u8>> {
    if count == 0 {
        return Some(path.to_vec());
    }
    let mut rest = path.splitn(count + 1, |byte| *byte == b'/').skip(count);
    rest.next()
        .filter(|rest| !rest.is_empty())
        .map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::stripped;

    #[test]
    fn names_are_stripped() {
        let check = |path: &str, count, expected: Option<&str>| {
            let found = stripped(path.as_bytes(), count);
            assert_eq!(
                found.as_deref(),
                expected.map(str::as_bytes),
                "{path} {count}"
            );
        };
        check("a/b/c", 0, Some("a/b/c"));
        check("a/b/c", 2, Some("c"));
        check("a/b/c", 3, None);
        check("", 0, Some(""));
        check("", 1, None);
    }
}
