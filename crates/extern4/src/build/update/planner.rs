//! Finds what differs between a volume and a merged tree.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use extern4_build::{MemberId, Merged, Progress, Watch};
use extern4_tree::{Data, Entry, Kind};
use extern4_vfs::{Errno, FileType, OpenFlags, Timespec};

use super::attributes::{Named, Wanted};
use super::contents;
use super::error::{Failure, Result, UpdateError};
use super::options::{Existing, UpdateOptions};
use super::step::{Action, Change, Extra, Step};
use super::summary::UpdateSummary;
use crate::build::tree_walk::Unreadable;
use crate::dir::is_step;
use crate::error::{Error, ErrorKind};
use crate::file::File;
use crate::metadata::Metadata;
use crate::session::Session;

/// The directory that every volume has, for what e2fsck finds.
const LOST_FOUND: &[u8] = b"lost+found";

/// The differences.
#[derive(Default)]
pub(super) struct Plan {
    /// Names that go. They are removed first, so that there is room for the rest.
    pub(super) removals: Vec<Step>,
    pub(super) steps: Vec<Step>,
    /// Names that cannot be changed.
    pub(super) refused: Vec<Unreadable>,
    /// Messages about links that directories replace.
    pub(super) warnings: Vec<String>,
    pub(super) summary: UpdateSummary,
}

/// A comparison of a volume with a tree.
struct Planner<'a> {
    merged: &'a Merged,
    options: &'a UpdateOptions,
    watch: Option<&'a Watch>,
    plan: Plan,
    /// Inodes of the volume that are to stay, with the numbers of their files in the tree.
    claimed: HashMap<u64, u32>,
    /// The first name of each file of the tree with the inode that stays for it, if one does.
    placed: HashMap<u32, (Vec<u8>, Option<u64>)>,
    /// Whether the name that is being compared changes.
    is_touched: bool,
    /// Steps for the end, after which files cannot be changed.
    protections: Vec<Step>,
}

/// A directory that is being compared.
struct Level {
    member: MemberId,
    path: Vec<u8>,
    /// A session in the directory, if the volume has one.
    there: Option<Session>,
    /// Names that are left to compare, the next one last.
    names: Vec<Pair>,
    /// Whether a name in it changes.
    is_touched: bool,
    /// The change of the directory's own attributes.
    own: Option<Change>,
    /// Whether its own attributes stay, whatever changes in it.
    stays: bool,
}

/// A name in the tree, in the volume, or in both.
struct Pair {
    name: Box<[u8]>,
    member: Option<MemberId>,
    is_there: bool,
}

/// Compares a volume, in whose root the session stands, with a tree.
pub(super) fn plan(
    merged: &Merged,
    session: &Session,
    options: &UpdateOptions,
    watch: Option<&Watch>,
) -> std::result::Result<Plan, UpdateError> {
    let claimed = HashMap::new();
    let placed = HashMap::new();
    let plan = Plan::default();
    let protections = Vec::new();
    let mut planner = Planner {
        merged,
        options,
        watch,
        plan,
        claimed,
        placed,
        is_touched: false,
        protections,
    };
    let top = planner.top(session).map_err(|failure| failure.at(b""))?;
    let mut levels = vec![top];
    while let Some(level) = levels.last_mut() {
        if let Some(pair) = level.names.pop() {
            let path = join(&level.path, &pair.name);
            let deeper = planner
                .visit(level, pair, &path)
                .map_err(|failure| failure.at(&path))?;
            levels.extend(deeper);
        } else if let Some(level) = levels.pop() {
            planner.leave(level);
        }
    }
    let Planner {
        mut plan,
        protections,
        ..
    } = planner;
    plan.steps.extend(protections);
    Ok(plan)
}

impl Planner<'_> {
    fn top(&mut self, session: &Session) -> Result<Level> {
        let named = Named {
            directory: session,
            name: OsStr::new("."),
        };
        let found = session.symlink_metadata(named.name)?;
        self.existing(self.merged.root(), Vec::new(), named, &found)
    }

    /// Compares one name. Returns the directory that is next.
    fn visit(&mut self, level: &mut Level, pair: Pair, path: &[u8]) -> Result<Option<Level>> {
        if let Some(watch) = self.watch {
            let entries = self.plan.summary.entries();
            if watch(Progress::Comparing { entries }).is_break() {
                return Err(Failure::Interrupted);
            }
        }
        self.is_touched = false;
        let name = OsStr::from_bytes(&pair.name);
        let deeper = match (pair.member, level.there.clone()) {
            (Some(member), Some(directory)) if pair.is_there => {
                let file = Named {
                    directory: &directory,
                    name,
                };
                let found = directory.symlink_metadata(name)?;
                let is_directory = self.merged.entry(member).kind == Kind::Directory;
                if path == LOST_FOUND && !is_directory {
                    self.refuse(path, Errno::EISDIR);
                    None
                } else if is_directory {
                    self.directory(member, file, &found, path)?
                } else {
                    self.file(member, file, &found, path)?;
                    None
                }
            }
            (Some(member), _) => self.missing(member, path),
            (None, Some(directory)) => {
                self.surplus(
                    Named {
                        directory: &directory,
                        name,
                    },
                    path,
                )?;
                None
            }
            (None, None) => None,
        };
        level.is_touched |= self.is_touched;
        Ok(deeper)
    }

    /// A directory of the tree, where the volume has a file.
    fn directory(
        &mut self,
        member: MemberId,
        file: Named<'_>,
        found: &Metadata,
        path: &[u8],
    ) -> Result<Option<Level>> {
        let is_followed = self.merged.is_implied(member) || self.options.keeps_directory_links;
        let is_link = !found.is_dir() && self.options.keeps_others && leads_to_directory(file);
        if found.is_dir() || is_link && is_followed {
            return self.existing(member, path.to_vec(), file, found).map(Some);
        }
        match self.options.existing {
            Existing::Replace => {}
            Existing::Refuse | Existing::Skip | Existing::KeepNewer => {
                self.refuse(path, Errno::ENOTDIR);
                return Ok(None);
            }
        }
        if is_link {
            let target = file.directory.read_link(file.name)?;
            let path = String::from_utf8_lossy(path);
            let warning = format!(
                "/{path}: a directory replaces the symbolic link to '{}'",
                target.display()
            );
            self.plan.warnings.push(warning);
        }
        Ok(self.make(member, path, Change::Replace))
    }

    /// A directory that both have.
    fn existing(
        &mut self,
        member: MemberId,
        path: Vec<u8>,
        file: Named<'_>,
        found: &Metadata,
    ) -> Result<Level> {
        let inside = file.directory.at(file.name)?;
        let stays = self.options.keeps_others
            && (self.merged.is_implied(member)
                || self.options.keeps_directories
                || !found.is_dir());
        let entry = self.merged.entry(member);
        let differs = !stays && !self.wanted(&entry, true).are_those_of(file, found)?;
        self.plan.summary.kept += u64::from(!differs);
        let names = self.pairs(member, Some(&inside), &path)?;
        let own = differs.then_some(Change::SetAttributes);
        Ok(Level {
            member,
            path,
            there: Some(inside),
            names,
            is_touched: false,
            own,
            stays,
        })
    }

    /// Pairs the names of a directory of the tree with the names of a directory of the volume.
    fn pairs(&self, member: MemberId, there: Option<&Session>, path: &[u8]) -> Result<Vec<Pair>> {
        let mut names: Vec<Pair> = self
            .merged
            .children(member)
            .map(|(name, member)| Pair {
                name: name.into(),
                member: Some(member),
                is_there: false,
            })
            .collect();
        let in_tree = names.len();
        if let Some(session) = there {
            for entry in session.read_dir(".")? {
                let entry = entry?;
                let name = entry.file_name();
                if !is_step(name) {
                    return Err(Error::new(ErrorKind::Corrupt, "read")
                        .because("not a file name")
                        .into());
                }
                let name = name.as_bytes();
                match names[..in_tree].binary_search_by(|pair| (*pair.name).cmp(name)) {
                    Ok(at) => names[at].is_there = true,
                    // Nothing that e2fsck has put there goes.
                    Err(_) if join(path, name) == LOST_FOUND || path == LOST_FOUND => {}
                    Err(_) => names.push(Pair {
                        name: name.into(),
                        member: None,
                        is_there: true,
                    }),
                }
            }
        }
        names.sort_unstable_by(|left, right| right.name.cmp(&left.name));
        Ok(names)
    }

    /// A file of the tree that is no directory, where the volume has a file.
    fn file(
        &mut self,
        member: MemberId,
        file: Named<'_>,
        found: &Metadata,
        path: &[u8],
    ) -> Result<()> {
        let number = self.merged.file_number(member);
        let entry = self.merged.entry(member);
        if let Some((first, ino)) = self.placed.get(&number) {
            if *ino == Some(found.ino()) {
                self.plan.summary.kept += 1;
                return Ok(());
            }
            let action = Action::Link(first.clone());
            self.replace(action, found, path, 0);
            return Ok(());
        }
        if self.stays(&entry, found) {
            self.plan.summary.kept += 1;
            self.placed
                .insert(number, (path.to_vec(), Some(found.ino())));
            return Ok(());
        }
        if self.options.existing == Existing::Refuse {
            self.refuse(path, Errno::EEXIST);
            return Ok(());
        }
        let wanted = self.wanted(&entry, false);
        // Other names of a file that changes are names of another file, or stay as they are.
        let is_own = !self.claimed.contains_key(&found.ino());
        if is_own && self.is_same(member, &entry, file, found)? {
            let has_all = wanted.are_those_of(file, found)?;
            if has_all || !self.options.keeps_others || found.nlink() == 1 {
                self.claimed.insert(found.ino(), number);
                self.placed
                    .insert(number, (path.to_vec(), Some(found.ino())));
                self.plan.summary.kept += u64::from(has_all);
                if !has_all {
                    self.plan.summary.changed += 1;
                    let action = Action::SetAttributes(member, Extra::Remove);
                    self.step(action, Some(Change::SetAttributes), path);
                }
                return Ok(());
            }
        }
        self.placed.insert(number, (path.to_vec(), None));
        self.replace(Action::Make(member), found, path, bytes_of(&entry));
        Ok(())
    }

    /// Returns whether a file stays as it is, whatever the tree has.
    fn stays(&self, entry: &Entry, found: &Metadata) -> bool {
        let time = Timespec {
            sec: entry.mtime.secs,
            nsec: entry.mtime.nanos,
        };
        match self.options.existing {
            Existing::Skip => true,
            Existing::KeepNewer => (found.mtime().sec, found.mtime().nsec) >= (time.sec, time.nsec),
            Existing::Replace | Existing::Refuse => false,
        }
    }

    /// Returns whether a file has the type of the entry, and the contents, the target or the
    /// numbers.
    fn is_same(
        &self,
        member: MemberId,
        entry: &Entry,
        file: Named<'_>,
        found: &Metadata,
    ) -> Result<bool> {
        let device = (found.rdev().major, found.rdev().minor);
        Ok(match (&entry.kind, found.file_type()) {
            (Kind::File(contents), FileType::Regular) => {
                if contents.size != found.len() {
                    return Ok(false);
                }
                let contents = self.merged.open(member)?;
                match contents {
                    Some(contents) => contents::are_same(&contents, &quiet(file)?)?,
                    None => false,
                }
            }
            (Kind::Symlink(target), FileType::Symlink) => {
                file.directory.read_link(file.name)?.as_os_str().as_bytes() == target
            }
            (Kind::CharDevice { major, minor }, FileType::CharDevice)
            | (Kind::BlockDevice { major, minor }, FileType::BlockDevice) => {
                device == (*major, *minor)
            }
            (Kind::Fifo, FileType::Fifo) | (Kind::Socket, FileType::Socket) => true,
            _ => false,
        })
    }

    /// Puts a file in the place of one that is there.
    fn replace(&mut self, action: Action, found: &Metadata, path: &[u8], bytes: u64) {
        if found.is_dir() && self.options.keeps_others {
            return self.refuse(path, Errno::EISDIR);
        }
        self.plan.summary.replaced += 1;
        self.plan.summary.bytes += bytes;
        self.step(action, Some(Change::Replace), path);
    }

    /// A member that the volume does not have.
    fn missing(&mut self, member: MemberId, path: &[u8]) -> Option<Level> {
        let entry = self.merged.entry(member);
        if entry.kind == Kind::Directory {
            return self.make(member, path, Change::Create);
        }
        self.plan.summary.created += 1;
        let number = self.merged.file_number(member);
        if let Some((first, _)) = self.placed.get(&number) {
            let first = first.clone();
            self.step(Action::Link(first), Some(Change::Create), path);
        } else {
            self.placed.insert(number, (path.to_vec(), None));
            self.plan.summary.bytes += bytes_of(&entry);
            self.step(Action::Make(member), Some(Change::Create), path);
        }
        None
    }

    /// Makes a directory, which becomes the next level.
    fn make(&mut self, member: MemberId, path: &[u8], change: Change) -> Option<Level> {
        match change {
            Change::Replace => self.plan.summary.replaced += 1,
            _ => self.plan.summary.created += 1,
        }
        self.step(Action::MakeDirectory(member), Some(change), path);
        let names = self.pairs(member, None, path).unwrap_or_default();
        Some(Level {
            member,
            path: path.to_vec(),
            there: None,
            names,
            is_touched: true,
            own: None,
            stays: false,
        })
    }

    /// A name that the tree does not have.
    fn surplus(&mut self, file: Named<'_>, path: &[u8]) -> Result<()> {
        if self.options.keeps_others {
            return Ok(());
        }
        for entry in file.directory.walk(file.name) {
            entry?;
            self.plan.summary.removed += 1;
        }
        self.is_touched = true;
        let step = Step {
            path: path.to_vec(),
            action: Action::Remove,
            change: Some(Change::Remove),
        };
        self.plan.removals.push(step);
        Ok(())
    }

    /// Ends a directory. It gets its attributes when all in it is done.
    fn leave(&mut self, level: Level) {
        self.plan.summary.changed += u64::from(level.own.is_some());
        if level.own.is_some() || level.is_touched && !level.stays {
            let extra = self.extra(level.there.is_some());
            self.step(
                Action::SetAttributes(level.member, extra),
                level.own,
                &level.path,
            );
        }
    }

    fn wanted<'e>(&self, entry: &'e Entry, is_directory: bool) -> Wanted<'e> {
        Wanted {
            entry,
            owners: self.options.owners,
            extra: self.extra(is_directory),
        }
    }

    /// Only a directory that stays can keep attributes that the tree does not have.
    fn extra(&self, is_existing_directory: bool) -> Extra {
        if self.options.keeps_others && is_existing_directory {
            Extra::Keep
        } else {
            Extra::Remove
        }
    }

    fn step(&mut self, action: Action, change: Option<Change>, path: &[u8]) {
        if let Action::Make(member) | Action::SetAttributes(member, _) = &action {
            let entry = self.merged.entry(*member);
            if self.wanted(&entry, true).protects() {
                let action = Action::Protect(*member);
                self.protections.push(Step {
                    path: path.to_vec(),
                    action,
                    change: None,
                });
            }
        }
        // Attributes of a file do not change the directory that it is in.
        self.is_touched |= !matches!(action, Action::SetAttributes(..));
        self.plan.steps.push(Step {
            path: path.to_vec(),
            action,
            change,
        });
    }

    fn refuse(&mut self, path: &[u8], errno: Errno) {
        let error = Error::new(ErrorKind::Os(errno), "replace");
        self.plan.refused.push(Unreadable {
            path: path.to_vec(),
            error,
        });
    }
}

/// Opens a file whose access time does not change, if the session may say so.
fn quiet(file: Named<'_>) -> Result<File> {
    let mut options = File::options();
    options
        .read(true)
        .custom_flags(OpenFlags::NOATIME | OpenFlags::NOFOLLOW);
    match file.directory.open_with(file.name, &options) {
        Err(error) if error.errno() == Errno::EPERM => Ok(file.directory.open(file.name)?),
        opened => Ok(opened?),
    }
}

fn leads_to_directory(file: Named<'_>) -> bool {
    file.directory
        .metadata(file.name)
        .is_ok_and(|found| found.is_dir())
}

/// Returns the bytes of contents that a new file gets, known holes not counted.
fn bytes_of(entry: &Entry) -> u64 {
    match &entry.kind {
        Kind::File(contents) => match &contents.data {
            Data::Pieces(pieces) => pieces.iter().map(|piece| piece.len).sum(),
            _ => contents.size,
        },
        _ => 0,
    }
}

fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    match directory {
        b"" => name.to_vec(),
        directory => [directory, b"/", name].concat(),
    }
}
