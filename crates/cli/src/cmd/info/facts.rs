//! The facts about a volume that `info` shows.
//!
//! `info` prints them as text or JSON. Every fact is in both, under a name that does not change.

use extern4::Timespec;
use extern4_disk::feature::{Incompat, RoCompat};
use extern4_disk::quota::Kind;
use extern4_disk::superblock::{
    CreatorOs, ErrorPolicy, ErrorRecord, JournalLocation, State, Superblock,
};

use crate::app::Opened;
use crate::fs_type::type_name;
use crate::json::{self, Object};
use crate::text::{escape, human, iso_time, uuid};

/// A fact about a volume.
pub(super) struct Fact {
    /// The key in JSON.
    key: &'static str,
    /// The name for people; empty if the fact is for scripts only.
    name: &'static str,
    value: Value,
}

enum Value {
    Text(String),
    /// Any bytes, such as a label.
    Bytes(Vec<u8>),
    Number(u64),
    /// A size in bytes.
    Size(u64),
    /// Seconds since 1970; 0 for never.
    Time(u64),
    /// Several words.
    Words(Vec<String>),
    Yes(bool),
    /// An error that the volume notes.
    Error(ErrorRecord),
}

/// Returns all facts about a volume, in the order they are shown.
pub(super) fn gather(volume: &Opened) -> extern4::Result<Vec<Fact>> {
    let superblock = volume.volume.ext4().superblock();
    let mut facts = Facts(Vec::new());
    facts.text("image", "Volume", volume.image.to_string());
    identity(
        superblock,
        volume.volume.ext4().replayed().is_some(),
        &mut facts,
    );
    space(superblock, &volume.volume.stat_fs()?, &mut facts);
    layout(superblock, &mut facts);
    history(superblock, &mut facts);
    journal(volume, &mut facts);
    Ok(facts.0)
}

struct Facts(Vec<Fact>);

impl Facts {
    fn add(&mut self, key: &'static str, name: &'static str, value: Value) {
        self.0.push(Fact { key, name, value });
    }

    fn text(&mut self, key: &'static str, name: &'static str, text: impl Into<String>) {
        self.add(key, name, Value::Text(text.into()));
    }

    fn number(&mut self, key: &'static str, name: &'static str, number: impl Into<u64>) {
        self.add(key, name, Value::Number(number.into()));
    }

    fn size(&mut self, key: &'static str, name: &'static str, bytes: u64) {
        self.add(key, name, Value::Size(bytes));
    }

    fn time(&mut self, key: &'static str, name: &'static str, seconds: u64) {
        self.add(key, name, Value::Time(seconds));
    }
}

fn identity(superblock: &Superblock, replayed: bool, facts: &mut Facts) {
    facts.text("type", "Type", type_name(superblock.features()));
    facts.add("label", "Label", Value::Bytes(superblock.label().to_vec()));
    facts.text("uuid", "UUID", uuid(superblock.uuid()));
    facts.add(
        "last_mounted",
        "Last mounted on",
        Value::Bytes(superblock.last_mounted().to_vec()),
    );
    facts.text("state", "State", state(superblock, replayed));
    let features = superblock
        .features()
        .iter()
        .map(|feature| feature.to_string())
        .collect();
    facts.add("features", "Features", Value::Words(features));
    let (major, minor) = superblock.revision();
    facts.text("revision", "Revision", format!("{major}.{minor}"));
    facts.text(
        "errors_behavior",
        "On errors",
        match superblock.error_policy() {
            ErrorPolicy::Continue => "continue".to_owned(),
            ErrorPolicy::RemountReadOnly => "remount read-only".to_owned(),
            ErrorPolicy::Panic => "panic".to_owned(),
            ErrorPolicy::Unknown(number) => format!("unknown ({number})"),
        },
    );
    facts.text(
        "creator_os",
        "Made by",
        match superblock.creator_os() {
            CreatorOs::Linux => "Linux".to_owned(),
            CreatorOs::Hurd => "GNU/Hurd".to_owned(),
            CreatorOs::Masix => "Masix".to_owned(),
            CreatorOs::FreeBsd => "FreeBSD".to_owned(),
            CreatorOs::Lites => "Lites".to_owned(),
            CreatorOs::Unknown(number) => format!("unknown ({number})"),
        },
    );
    let options = superblock
        .default_mount_options()
        .names()
        .map(str::to_owned)
        .collect();
    facts.add(
        "default_mount_options",
        "Default mount options",
        Value::Words(options),
    );
    facts.add(
        "mount_options",
        "Mount options",
        Value::Bytes(superblock.mount_options().to_vec()),
    );
    if let Some((encoding, flags)) = superblock.encoding() {
        let name = if encoding == 1 {
            "utf8-12.1".to_owned()
        } else {
            format!("unknown ({encoding})")
        };
        let strict = if flags & 1 != 0 { ", strict" } else { "" };
        facts.text("encoding", "Encoding of names", name + strict);
    }
}

/// Returns the state in `dumpe2fs`'s words. A copy of the superblock does not tell that the journal
/// has to be `replayed`.
fn state(superblock: &Superblock, replayed: bool) -> String {
    let state = superblock.state();
    let clean = if state.contains(State::VALID) {
        "clean"
    } else {
        "not clean"
    };
    let errors = if state.contains(State::ERROR) {
        " with errors"
    } else {
        ""
    };
    let orphans = if state.contains(State::ORPHANS) {
        ", deleting orphans"
    } else {
        ""
    };
    let recover = replayed || superblock.features().incompat.contains(Incompat::RECOVER);
    format!(
        "{clean}{errors}{orphans}{}",
        if recover {
            ", journal to be replayed"
        } else {
            ""
        }
    )
}

fn space(superblock: &Superblock, free: &extern4::StatFs, facts: &mut Facts) {
    let block_size = u64::from(superblock.block_size());
    let bytes = |blocks: u64| blocks.saturating_mul(block_size);
    facts.size("size_bytes", "Size", bytes(superblock.blocks_count()));
    facts.size("free_bytes", "Free", bytes(free.blocks_free));
    facts.size(
        "reserved_bytes",
        "Reserved",
        bytes(superblock.reserved_blocks()),
    );
    facts.number("blocks", "Blocks", superblock.blocks_count());
    facts.number("free_blocks", "Free blocks", free.blocks_free);
    facts.number(
        "reserved_blocks",
        "Reserved blocks",
        superblock.reserved_blocks(),
    );
    let (reserved_uid, reserved_gid) = superblock.reserved_ids();
    facts.number("reserved_uid", "Reserved for user", reserved_uid);
    facts.number("reserved_gid", "Reserved for group", reserved_gid);
    facts.number("inodes", "Inodes", superblock.inodes_count());
    facts.number("free_inodes", "Free inodes", free.files_free);
    facts.number("block_size", "Block size", block_size);
    if superblock.geometry().bigalloc() {
        facts.number("cluster_size", "Cluster size", superblock.cluster_size());
    }
}

fn layout(superblock: &Superblock, facts: &mut Facts) {
    let geometry = superblock.geometry();
    facts.number("first_block", "First block", geometry.first_data_block());
    facts.number("groups", "Groups", geometry.group_count());
    facts.number(
        "blocks_per_group",
        "Blocks per group",
        geometry.blocks_per_group(),
    );
    facts.number(
        "inodes_per_group",
        "Inodes per group",
        geometry.inodes_per_group(),
    );
    facts.number(
        "inode_blocks_per_group",
        "Inode blocks per group",
        geometry.inode_table_blocks(),
    );
    facts.number(
        "descriptor_size",
        "Group descriptor size",
        geometry.desc_size(),
    );
    facts.number(
        "reserved_gdt_blocks",
        "Reserved GDT blocks",
        superblock.reserved_gdt_blocks(),
    );
    if geometry.groups_per_flex() > 1 {
        facts.number(
            "groups_per_flex",
            "Groups per flexible group",
            geometry.groups_per_flex(),
        );
    }
    let (stride, width) = superblock.raid();
    if stride != 0 || width != 0 {
        facts.number("raid_stride", "RAID stride", stride);
        facts.number("raid_stripe_width", "RAID stripe width", width);
    }
    facts.number("inode_size", "Inode size", superblock.inode_size());
    let (required, desired) = superblock.extra_isize();
    facts.number(
        "extra_isize_required",
        "Extra inode size, required",
        required,
    );
    facts.number("extra_isize_desired", "Extra inode size, desired", desired);
    facts.number("first_inode", "First inode", superblock.first_ino());
    facts.text(
        "directory_hash",
        "Directory hash",
        directory_hash(superblock),
    );
    let [a, b, c, d] = superblock.hash_seed().map(u32::to_le_bytes);
    let mut seed = [0; 16];
    [a, b, c, d]
        .iter()
        .flatten()
        .zip(&mut seed)
        .for_each(|(from, to)| *to = *from);
    facts.text("hash_seed", "Directory hash seed", uuid(seed));
    let features = superblock.features();
    let checksum = match (
        features.metadata_csum(),
        features.ro_compat.contains(RoCompat::GDT_CSUM),
    ) {
        (true, _) => "crc32c of all metadata",
        (false, true) => "crc16 of group descriptors",
        (false, false) => "none",
    };
    facts.text("checksums", "Checksums", checksum);
    if let Some(block) = superblock.mmp_block() {
        facts.number("mmp_block", "Multiple mount protection block", block);
        facts.number(
            "mmp_interval",
            "Multiple mount protection interval",
            superblock.mmp_interval(),
        );
    }
    for (key, name, ino) in [
        ("journal_inode", "Journal inode", superblock.journal_inode()),
        (
            "orphan_file_inode",
            "Orphan file inode",
            superblock.orphan_file_inode(),
        ),
        (
            "user_quota_inode",
            "User quota inode",
            superblock.quota_inode(Kind::User),
        ),
        (
            "group_quota_inode",
            "Group quota inode",
            superblock.quota_inode(Kind::Group),
        ),
        (
            "project_quota_inode",
            "Project quota inode",
            superblock.quota_inode(Kind::Project),
        ),
        (
            "first_orphan",
            "First orphan inode",
            superblock.last_orphan(),
        ),
    ] {
        if let Some(ino) = ino {
            facts.number(key, name, ino);
        }
    }
}

fn directory_hash(superblock: &Superblock) -> String {
    let name = match superblock.default_hash_version() {
        0 => "legacy",
        1 => "half_md4",
        2 => "tea",
        3 => "legacy_unsigned",
        4 => "half_md4_unsigned",
        5 => "tea_unsigned",
        6 => "siphash",
        _ => "unknown",
    };
    let unsigned = superblock.unsigned_hash() && superblock.default_hash_version() < 3;
    format!("{name}{}", if unsigned { " (unsigned)" } else { "" })
}

fn history(superblock: &Superblock, facts: &mut Facts) {
    facts.time("made", "Made", superblock.made_time());
    facts.time("mounted", "Last mounted", superblock.mount_time());
    facts.time("written", "Last written", superblock.write_time());
    facts.time("checked", "Last checked", superblock.check_time());
    facts.number(
        "check_interval_seconds",
        "Check interval in seconds",
        superblock.check_interval(),
    );
    facts.number(
        "mount_count",
        "Mounts since checked",
        superblock.mount_count(),
    );
    if let Some(most) = superblock.max_mount_count() {
        facts.number("max_mount_count", "Mounts before a check", most);
    }
    facts.size(
        "lifetime_writes_bytes",
        "Written in its life",
        superblock.kbytes_written().saturating_mul(1024),
    );
    facts.number("error_count", "Errors", superblock.error_count());
    if let Some(error) = superblock.first_error() {
        facts.add("first_error", "First error", Value::Error(error));
    }
    if let Some(error) = superblock.last_error() {
        facts.add("last_error", "Last error", Value::Error(error));
    }
}

/// Returns the time that a superblock writes as seconds.
fn time(seconds: u64) -> Timespec {
    Timespec {
        sec: i64::try_from(seconds).unwrap_or(i64::MAX),
        nsec: 0,
    }
}

/// Returns the text of an error that a superblock notes.
pub(crate) fn error_text(error: &ErrorRecord) -> String {
    let function = error
        .function
        .split(|byte| *byte == 0)
        .next()
        .unwrap_or_default();
    let time = iso_time(time(error.time).sec);
    // extern4 notes no function of its own.
    let code = match function {
        [] => String::new(),
        function => format!(" in {} line {}", escape(function), error.line),
    };
    format!("{time}{code}, inode {}, block {}", error.ino, error.block)
}

/// Adds the first and the last error that a superblock notes as members of an object.
pub(crate) fn json_errors(
    object: &mut Object<'_>,
    count: u32,
    first: Option<ErrorRecord>,
    last: Option<ErrorRecord>,
) {
    object.raw("error_count", count);
    for (key, error) in [("first_error", first), ("last_error", last)] {
        if let Some(error) = error {
            object.text(key, &error_text(&error));
            json::time(object, key, Some(time(error.time)));
        }
    }
}

fn journal(volume: &Opened, facts: &mut Facts) {
    let ext4 = volume.volume.ext4();
    match ext4.superblock().journal() {
        None => facts.text("journal", "Journal", "none"),
        Some(JournalLocation::Inode(ino)) => {
            facts.text("journal", "Journal", format!("inode {ino}"))
        }
        Some(JournalLocation::Device { uuid: id, .. }) => {
            facts.text(
                "journal",
                "Journal",
                format!("on another device, UUID {}", uuid(id)),
            );
        }
    }
    // `check` reports faults of a journal; here it is only left out.
    if let Ok(Some(info)) = ext4.journal_info(None) {
        let journal = &info.superblock;
        let bytes = u64::from(journal.len_blocks).saturating_mul(u64::from(journal.block_size));
        facts.size("journal_bytes", "Journal size", bytes);
        let features = format!(
            "{} {} {}",
            journal.compat, journal.incompat, journal.ro_compat
        );
        let features = features.split_whitespace().map(str::to_owned).collect();
        facts.add(
            "journal_features",
            "Journal features",
            Value::Words(features),
        );
        facts.number("journal_sequence", "Journal sequence", journal.sequence.0);
        facts.number("journal_start", "Journal start", journal.start.unwrap_or(0));
        if journal.errno != 0 {
            facts.text("journal_errno", "Journal error", journal.errno.to_string());
        }
    }
    let replayed = ext4.replayed();
    facts.add(
        "journal_replayed",
        "Journal replayed in memory",
        Value::Yes(replayed.is_some()),
    );
    if let Some(replayed) = replayed {
        facts.number(
            "replayed_transactions",
            "Replayed transactions",
            replayed.transactions,
        );
        facts.number("replayed_blocks", "Replayed blocks", replayed.blocks);
        facts.number(
            "replayed_fast_commits",
            "Replayed fast commits",
            replayed.fast_commits,
        );
    }
}

/// Returns the facts in two columns.
pub(super) fn people(facts: &[Fact]) -> String {
    let width = facts.iter().map(|fact| fact.name.len()).max().unwrap_or(0) + 1;
    let mut text = String::new();
    for fact in facts {
        let name = format!("{}:", fact.name);
        let value = fact.value.people();
        let value = if value.is_empty() {
            "<none>"
        } else {
            value.as_str()
        };
        text.push_str(&format!("{name:width$} {value}\n"));
    }
    text
}

impl Value {
    fn people(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Bytes(bytes) => escape(bytes).into_owned(),
            Self::Number(number) => number.to_string(),
            Self::Size(bytes) => human(*bytes),
            Self::Time(0) => "never".to_owned(),
            Self::Time(seconds) => iso_time(time(*seconds).sec),
            Self::Words(words) => words.join(" "),
            Self::Yes(yes) => if *yes { "yes" } else { "no" }.to_owned(),
            Self::Error(error) => error_text(error),
        }
    }
}

/// Adds the facts as members of an object.
pub(super) fn json(facts: &[Fact], object: &mut Object<'_>) {
    for fact in facts {
        match &fact.value {
            Value::Text(text) => object.text(fact.key, text),
            Value::Bytes(bytes) => object.bytes(fact.key, bytes),
            Value::Number(number) | Value::Size(number) => object.raw(fact.key, number),
            Value::Time(seconds) => {
                let seconds = Some(*seconds).filter(|seconds| *seconds != 0);
                object.maybe(fact.key, seconds);
                json::time(object, fact.key, seconds.map(time));
            }
            Value::Error(error) => {
                object.text(fact.key, &error_text(error));
                json::time(object, fact.key, Some(time(error.time)));
            }
            Value::Words(words) => object.texts(fact.key, words),
            Value::Yes(yes) => object.raw(fact.key, yes),
        }
    }
}
