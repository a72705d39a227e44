//! `extern4 getfacl`: shows access control lists, as `getfacl` writes them and `setfacl --restore`
//! reads them.
//!
//! `args` calls [`run`]. `setfacl --restore` of its output sets the same ACLs.

mod tabular;

use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use extern4::{Acl, AclKind, AclTag, Metadata};

use crate::app::{App, Opened, Shown, Target};
use crate::image_path::ImagePath;
use crate::json;
use crate::output::{Out, flush};
use crate::text::{Backslash, push_octal};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Files to show
    #[arg(value_name = "IMAGE:/PATH", required = true, value_parser = ImagePath::parser())]
    image_paths: Vec<ImagePath>,
    /// Show only the access ACL
    #[arg(short, long)]
    access: bool,
    /// Show only the default ACL
    #[arg(short, long)]
    default: bool,
    /// Leave out the lines with file, owner and group
    #[arg(short = 'c', long)]
    omit_header: bool,
    /// Leave out files that have only the permission bits
    #[arg(short, long)]
    skip_base: bool,
    /// Show everything below directories too
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Show numbers instead of the names in the image's /etc/passwd and /etc/group
    #[arg(short, long)]
    numeric: bool,
    /// Show both ACLs side by side; rights that the mask takes away are capitals
    #[arg(short, long)]
    tabular: bool,
    /// Show what is left by the mask of every entry that it applies to
    #[arg(short = 'e', long, overrides_with = "no_effective")]
    all_effective: bool,
    /// Do not show what the mask leaves
    #[arg(short = 'E', long)]
    no_effective: bool,
    /// Do not follow symbolic links below directories, as without this option
    #[arg(short = 'P', long)]
    physical: bool,
    /// Stay in one volume, as without this option
    #[arg(long)]
    one_file_system: bool,
    /// Show paths with the slash they start with
    #[arg(short = 'p', long)]
    absolute_names: bool,
    /// Write one JSON object a line for each file
    #[arg(long)]
    json: bool,
}

/// The facts about a file that are shown.
struct File<'a> {
    volume: &'a Opened,
    path: &'a Path,
    metadata: Metadata,
    access: Option<Acl>,
    default: Option<Acl>,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let shown = app.shown_for(&args.image_paths);
    let mut out = app.out(shown.is_complete());
    for image_path in &args.image_paths {
        let Some(target) = app.target(image_path) else {
            continue;
        };
        if args.recursive {
            walk(args, &target, shown, &mut out, app)?;
        } else {
            one(args, &target.volume, target.path(), shown, &mut out, app)?;
        }
    }
    app.end_output(&mut out)
}

/// Shows everything below an image path except symbolic links, which have no ACLs.
fn walk(
    args: &Args,
    target: &Target,
    shown: Shown,
    out: &mut Out,
    app: &mut App,
) -> io::Result<()> {
    for entry in target.session().walk(target.path()) {
        match entry {
            Ok(entry)
                if entry
                    .file_type()
                    .is_ok_and(|kind| kind == extern4::FileType::Symlink) => {}
            Ok(entry) => one(args, &target.volume, entry.path(), shown, out, app)?,
            Err(error) => {
                flush(out)?;
                let path = error.path().unwrap_or(target.path()).to_owned();
                app.error(target.volume.image_path(&path), &error);
            }
        }
    }
    Ok(())
}

fn one(
    args: &Args,
    volume: &Opened,
    path: &Path,
    shown: Shown,
    out: &mut Out,
    app: &mut App,
) -> io::Result<()> {
    match read(volume, path) {
        Ok(file) if args.skip_base && file.access.is_none() && file.default.is_none() => Ok(()),
        Ok(file) if args.json => out.write_all(file.json().as_bytes()),
        Ok(file) => out.write_all(&file.text(args, shown)),
        Err(error) => {
            flush(out)?;
            app.error(volume.image_path(path), &error);
            Ok(())
        }
    }
}

fn read<'a>(volume: &'a Opened, path: &'a Path) -> extern4::Result<File<'a>> {
    let metadata = volume.session.metadata(path)?;
    let access = volume.session.acl(path, AclKind::Access)?;
    let default = if metadata.is_dir() {
        volume.session.acl(path, AclKind::Default)?
    } else {
        None
    };
    Ok(File {
        volume,
        path,
        metadata,
        access,
        default,
    })
}

impl File<'_> {
    fn text(&self, args: &Args, shown: Shown) -> Vec<u8> {
        let mut text = Vec::new();
        if !args.omit_header || args.tabular {
            self.header(args, shown, &mut text);
        }
        if args.tabular {
            self.table(args, &mut text);
            text.push(b'\n');
            return text;
        }
        if !args.default || args.access {
            match &self.access {
                Some(acl) => self.entries(&entries(acl), "", args, &mut text),
                None => self.entries(&from_mode(self.metadata.mode()), "", args, &mut text),
            }
        }
        if let Some(acl) = &self.default
            && (args.default || !args.access)
        {
            // Default entries without access entries need no prefix.
            let prefix = if args.default && !args.access {
                ""
            } else {
                "default:"
            };
            self.entries(&entries(acl), prefix, args, &mut text);
        }
        text.push(b'\n');
        text
    }

    fn header(&self, args: &Args, shown: Shown, text: &mut Vec<u8>) {
        text.extend_from_slice(b"# file: ");
        if shown.is_complete() {
            text.extend(shown.path(&self.volume.image, self.path));
        } else {
            text.extend_from_slice(&shown.prefix(&self.volume.image));
            let path = self.path.as_os_str().as_bytes();
            let relative = path
                .iter()
                .position(|byte| *byte != b'/')
                .map_or(&b"."[..], |start| &path[start..]);
            let name = if args.absolute_names { path } else { relative };
            push_octal(text, name, b"", Backslash::Doubled, shown.terminal);
        }
        if args.tabular {
            return text.push(b'\n');
        }
        let owner = format!(
            "\n# owner: {}\n# group: {}\n",
            self.user(self.metadata.uid(), args.numeric),
            self.group(self.metadata.gid(), args.numeric)
        );
        text.extend_from_slice(owner.as_bytes());
        let mode = self.metadata.mode();
        if mode & 0o7000 != 0 {
            let flag = |bit, letter| if mode & bit != 0 { letter } else { '-' };
            let flags = format!(
                "# flags: {}{}{}\n",
                flag(0o4000, 's'),
                flag(0o2000, 's'),
                flag(0o1000, 't')
            );
            text.extend_from_slice(flags.as_bytes());
        }
    }

    /// Appends both ACLs side by side.
    fn table(&self, args: &Args, text: &mut Vec<u8>) {
        let both = args.access == args.default;
        let access = self
            .access
            .as_ref()
            .map_or_else(|| from_mode(self.metadata.mode()), entries);
        let default = self.default.as_ref().map(entries).unwrap_or_default();
        let access = if both || args.access {
            access
        } else {
            Vec::new()
        };
        let default = if both || args.default {
            default
        } else {
            Vec::new()
        };
        let name = |tag| match tag {
            AclTag::UserObj => self.user(self.metadata.uid(), args.numeric),
            AclTag::User(uid) => self.user(uid, args.numeric),
            AclTag::GroupObj => self.group(self.metadata.gid(), args.numeric),
            AclTag::Group(gid) => self.group(gid, args.numeric),
            AclTag::Mask | AclTag::Other => String::new(),
        };
        text.extend_from_slice(&tabular::rows(&access, &default, name));
    }

    fn entries(&self, entries: &[(AclTag, u8)], prefix: &str, args: &Args, text: &mut Vec<u8>) {
        let numeric = args.numeric;
        let has_mask = entries.iter().any(|(tag, _)| *tag == AclTag::Mask);
        let mask = entries
            .iter()
            .find(|(tag, _)| *tag == AclTag::Mask)
            .map_or(7, |(_, perm)| *perm);
        for (tag, perm) in entries {
            let who = match tag {
                AclTag::UserObj => "user:".to_owned(),
                AclTag::User(uid) => format!("user:{}", self.user(*uid, numeric)),
                AclTag::GroupObj => "group:".to_owned(),
                AclTag::Group(gid) => format!("group:{}", self.group(*gid, numeric)),
                AclTag::Mask => "mask:".to_owned(),
                AclTag::Other => "other:".to_owned(),
            };
            text.extend_from_slice(format!("{prefix}{who}:{}", rights(*perm)).as_bytes());
            let masked = matches!(tag, AclTag::User(_) | AclTag::GroupObj | AclTag::Group(_));
            let is_cut = perm & mask != *perm || args.all_effective && has_mask;
            if masked && is_cut && !args.no_effective {
                text.extend_from_slice(format!("\t#effective:{}", rights(perm & mask)).as_bytes());
            }
            text.push(b'\n');
        }
    }

    fn user(&self, uid: u32, numeric: bool) -> String {
        if numeric {
            uid.to_string()
        } else {
            self.volume.names().user(uid).into_owned()
        }
    }

    fn group(&self, gid: u32, numeric: bool) -> String {
        if numeric {
            gid.to_string()
        } else {
            self.volume.names().group(gid).into_owned()
        }
    }

    fn json(&self) -> String {
        let mode = self.metadata.mode();
        json::line(|object| {
            object.text("image", &self.volume.image.to_string());
            object.bytes("path", self.path.as_os_str().as_bytes());
            object.raw("uid", self.metadata.uid());
            object.raw("gid", self.metadata.gid());
            object.text("mode", &crate::text::octal_mode(mode));
            let access = self
                .access
                .as_ref()
                .map_or_else(|| from_mode(mode), entries);
            object.objects("access", access, json_entry);
            object.objects(
                "default",
                self.default.as_ref().map(entries).unwrap_or_default(),
                json_entry,
            );
        })
    }
}

fn json_entry((tag, perm): (AclTag, u8), object: &mut json::Object<'_>) {
    let (word, id) = match tag {
        AclTag::UserObj => ("user_obj", None),
        AclTag::User(uid) => ("user", Some(uid)),
        AclTag::GroupObj => ("group_obj", None),
        AclTag::Group(gid) => ("group", Some(gid)),
        AclTag::Mask => ("mask", None),
        AclTag::Other => ("other", None),
    };
    object.text("tag", word);
    if let Some(id) = id {
        object.raw("id", id);
    }
    object.text("perm", &rights(perm));
}

fn entries(acl: &Acl) -> Vec<(AclTag, u8)> {
    acl.entries()
        .iter()
        .map(|entry| (entry.tag, entry.perm))
        .collect()
}

/// Returns the permission bits as an ACL.
fn from_mode(mode: u32) -> Vec<(AclTag, u8)> {
    let bits = |shift: u32| u8::try_from(mode >> shift & 7).expect("three bits");
    vec![
        (AclTag::UserObj, bits(6)),
        (AclTag::GroupObj, bits(3)),
        (AclTag::Other, bits(0)),
    ]
}

fn rights(perm: u8) -> String {
    [(4, 'r'), (2, 'w'), (1, 'x')]
        .map(|(bit, letter)| if perm & bit != 0 { letter } else { '-' })
        .iter()
        .collect()
}
