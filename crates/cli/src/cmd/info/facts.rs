//! The facts about a volume that `info` shows.
//!
//! `info` prints them as text or JSON. Every fact is in both, under a name that does not change.

use extern4::info::{
    CreatorOs, Encoding, ErrorPolicy, ErrorRecord, History, Info, JournalInfo, Layout, Space,
};

use crate::app::Opened;
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
    let info = Info::of(&volume.volume)?;
    let mut facts = Facts(Vec::new());
    facts.text("image", "Volume", volume.image.to_string());
    identity(&info, &mut facts);
    space(&info.space, &mut facts);
    layout(&info.layout, &mut facts);
    history(&info.history, &mut facts);
    journal(&info.journal, &mut facts);
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

    fn maybe(&mut self, key: &'static str, name: &'static str, number: Option<impl Into<u64>>) {
        number
            .into_iter()
            .for_each(|number| self.number(key, name, number));
    }

    fn words(
        &mut self,
        key: &'static str,
        name: &'static str,
        words: impl Iterator<Item = impl Into<String>>,
    ) {
        self.add(key, name, Value::Words(words.map(Into::into).collect()));
    }

    fn size(&mut self, key: &'static str, name: &'static str, bytes: u64) {
        self.add(key, name, Value::Size(bytes));
    }

    fn time(&mut self, key: &'static str, name: &'static str, seconds: u64) {
        self.add(key, name, Value::Time(seconds));
    }
}

fn identity(info: &Info, facts: &mut Facts) {
    facts.text("type", "Type", info.type_name);
    facts.add("label", "Label", Value::Bytes(info.label.clone()));
    facts.text("uuid", "UUID", uuid(info.uuid));
    facts.add(
        "last_mounted",
        "Last mounted on",
        Value::Bytes(info.last_mounted.clone()),
    );
    facts.text("state", "State", info.state.to_string());
    facts.words(
        "features",
        "Features",
        info.features.iter().map(|feature| feature.to_string()),
    );
    let (major, minor) = info.revision;
    facts.text("revision", "Revision", format!("{major}.{minor}"));
    facts.text(
        "errors_behavior",
        "On errors",
        match info.error_policy {
            ErrorPolicy::Continue => "continue".to_owned(),
            ErrorPolicy::RemountReadOnly => "remount read-only".to_owned(),
            ErrorPolicy::Panic => "panic".to_owned(),
            ErrorPolicy::Unknown(number) => format!("unknown ({number})"),
        },
    );
    facts.text(
        "creator_os",
        "Made by",
        match info.creator_os {
            CreatorOs::Linux => "Linux".to_owned(),
            CreatorOs::Hurd => "GNU/Hurd".to_owned(),
            CreatorOs::Masix => "Masix".to_owned(),
            CreatorOs::FreeBsd => "FreeBSD".to_owned(),
            CreatorOs::Lites => "Lites".to_owned(),
            CreatorOs::Unknown(number) => format!("unknown ({number})"),
        },
    );
    let options = info.default_mount_options.iter().copied();
    facts.words("default_mount_options", "Default mount options", options);
    facts.add(
        "mount_options",
        "Mount options",
        Value::Bytes(info.mount_options.clone()),
    );
    if let Some(encoding) = info.encoding {
        facts.text("encoding", "Encoding of names", encoding_name(encoding));
    }
}

fn encoding_name(Encoding { number, is_strict }: Encoding) -> String {
    let name = match number {
        1 => "utf8-12.1".to_owned(),
        _ => format!("unknown ({number})"),
    };
    let strict = if is_strict { ", strict" } else { "" };
    name + strict
}

fn space(space: &Space, facts: &mut Facts) {
    facts.size("size_bytes", "Size", space.bytes(space.blocks));
    facts.size("free_bytes", "Free", space.bytes(space.free_blocks));
    facts.size(
        "reserved_bytes",
        "Reserved",
        space.bytes(space.reserved_blocks),
    );
    facts.number("blocks", "Blocks", space.blocks);
    facts.number("free_blocks", "Free blocks", space.free_blocks);
    facts.number("reserved_blocks", "Reserved blocks", space.reserved_blocks);
    facts.number("reserved_uid", "Reserved for user", space.reserved_uid);
    facts.number("reserved_gid", "Reserved for group", space.reserved_gid);
    facts.number("inodes", "Inodes", space.inodes);
    facts.number("free_inodes", "Free inodes", space.free_inodes);
    facts.number("block_size", "Block size", space.block_size);
    facts.maybe("cluster_size", "Cluster size", space.cluster_size);
}

fn layout(layout: &Layout, facts: &mut Facts) {
    facts.number("first_block", "First block", layout.first_block);
    facts.number("groups", "Groups", layout.groups);
    facts.number(
        "blocks_per_group",
        "Blocks per group",
        layout.blocks_per_group,
    );
    facts.number(
        "inodes_per_group",
        "Inodes per group",
        layout.inodes_per_group,
    );
    facts.number(
        "inode_blocks_per_group",
        "Inode blocks per group",
        layout.inode_blocks_per_group,
    );
    facts.number(
        "descriptor_size",
        "Group descriptor size",
        layout.descriptor_size,
    );
    facts.number(
        "reserved_gdt_blocks",
        "Reserved GDT blocks",
        layout.reserved_gdt_blocks,
    );
    let groups_per_flex = Some(layout.groups_per_flex).filter(|groups| *groups > 1);
    facts.maybe(
        "groups_per_flex",
        "Groups per flexible group",
        groups_per_flex,
    );
    if let Some(raid) = layout.raid {
        facts.number("raid_stride", "RAID stride", raid.stride);
        facts.number("raid_stripe_width", "RAID stripe width", raid.stripe_width);
    }
    facts.number("inode_size", "Inode size", layout.inode_size);
    facts.number(
        "extra_isize_required",
        "Extra inode size, required",
        layout.extra_isize_required,
    );
    facts.number(
        "extra_isize_desired",
        "Extra inode size, desired",
        layout.extra_isize_desired,
    );
    facts.number("first_inode", "First inode", layout.first_inode);
    let unsigned = if layout.has_unsigned_hash {
        " (unsigned)"
    } else {
        ""
    };
    facts.text(
        "directory_hash",
        "Directory hash",
        format!("{}{unsigned}", layout.directory_hash),
    );
    facts.text("hash_seed", "Directory hash seed", uuid(layout.hash_seed));
    facts.text("checksums", "Checksums", layout.checksums.to_string());
    if let Some(mmp) = layout.multiple_mount {
        facts.number("mmp_block", "Multiple mount protection block", mmp.block);
        facts.number(
            "mmp_interval",
            "Multiple mount protection interval",
            mmp.interval,
        );
    }
    let inodes = &layout.inodes;
    facts.maybe("journal_inode", "Journal inode", inodes.journal);
    facts.maybe("orphan_file_inode", "Orphan file inode", inodes.orphan_file);
    facts.maybe("user_quota_inode", "User quota inode", inodes.user_quota);
    facts.maybe("group_quota_inode", "Group quota inode", inodes.group_quota);
    facts.maybe(
        "project_quota_inode",
        "Project quota inode",
        inodes.project_quota,
    );
    facts.maybe("first_orphan", "First orphan inode", inodes.first_orphan);
}

fn history(history: &History, facts: &mut Facts) {
    facts.time("made", "Made", history.made);
    facts.time("mounted", "Last mounted", history.mounted);
    facts.time("written", "Last written", history.written);
    facts.time("checked", "Last checked", history.checked);
    facts.number(
        "check_interval_seconds",
        "Check interval in seconds",
        history.check_interval,
    );
    facts.number("mount_count", "Mounts since checked", history.mount_count);
    facts.maybe(
        "max_mount_count",
        "Mounts before a check",
        history.max_mount_count,
    );
    facts.size(
        "lifetime_writes_bytes",
        "Written in its life",
        history.lifetime_writes_bytes,
    );
    facts.number("error_count", "Errors", history.error_count);
    if let Some(error) = history.first_error {
        facts.add("first_error", "First error", Value::Error(error));
    }
    if let Some(error) = history.last_error {
        facts.add("last_error", "Last error", Value::Error(error));
    }
}

/// Returns the text of an error that a superblock notes.
pub(crate) fn error_text(error: &ErrorRecord) -> String {
    let function = error
        .function
        .split(|byte| *byte == 0)
        .next()
        .unwrap_or_default();
    let time = iso_time(json::at_seconds(error.time).sec);
    // extern4 notes no function.
    let code = match function {
        [] => String::new(),
        function => format!(" in {} line {}", escape(function), error.line),
    };
    format!("{time}{code}, inode {}, block {}", error.ino, error.block)
}

fn journal(journal: &JournalInfo, facts: &mut Facts) {
    let place = journal.location.map(|place| place.to_string());
    facts.text("journal", "Journal", place.unwrap_or("none".to_owned()));
    if let Some(contents) = &journal.contents {
        facts.size("journal_bytes", "Journal size", contents.bytes);
        facts.words(
            "journal_features",
            "Journal features",
            contents.features.iter(),
        );
        facts.number("journal_sequence", "Journal sequence", contents.sequence);
        facts.number("journal_start", "Journal start", contents.start);
        if contents.errno != 0 {
            facts.text("journal_errno", "Journal error", contents.errno.to_string());
        }
    }
    facts.add(
        "journal_replayed",
        "Journal replayed in memory",
        Value::Yes(journal.replayed.is_some()),
    );
    if let Some(replayed) = journal.replayed {
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
            Self::Time(seconds) => iso_time(json::at_seconds(*seconds).sec),
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
                json::time(object, fact.key, seconds.map(json::at_seconds));
            }
            Value::Error(error) => {
                object.text(fact.key, &error_text(error));
                json::time(object, fact.key, Some(json::at_seconds(error.time)));
            }
            Value::Words(words) => object.texts(fact.key, words),
            Value::Yes(yes) => object.raw(fact.key, yes),
        }
    }
}
