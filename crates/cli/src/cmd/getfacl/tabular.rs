//! `getfacl -t`: both ACLs of a file, side by side.
//!
//! `getfacl` prints the rows. An entry that only one of the ACLs has leaves the other column empty.

use extern4::AclTag;

/// The least width of the column of names.
const NAME_WIDTH: usize = 8;

/// Returns the rows of both ACLs. `name` is the name of an entry, and that of the owner or the
/// group for theirs.
pub(super) fn rows(
    access: &[(AclTag, u8)],
    default: &[(AclTag, u8)],
    name: impl Fn(AclTag) -> String,
) -> Vec<u8> {
    let mut tags: Vec<AclTag> = access.iter().chain(default).map(|(tag, _)| *tag).collect();
    tags.sort();
    tags.dedup();
    let names: Vec<String> = tags.iter().map(|tag| name(*tag)).collect();
    let width = names
        .iter()
        .map(String::len)
        .max()
        .unwrap_or(0)
        .max(NAME_WIDTH);
    let mut text = String::new();
    for (tag, name) in tags.into_iter().zip(names) {
        let word = match tag {
            AclTag::UserObj => "USER",
            AclTag::User(_) => "user",
            AclTag::GroupObj => "GROUP",
            AclTag::Group(_) => "group",
            AclTag::Mask => "mask",
            AclTag::Other => "other",
        };
        text.push_str(&format!(
            "{word:5}  {name:width$}  {}  {}\n",
            cell(access, tag),
            cell(default, tag)
        ));
    }
    text.into_bytes()
}

/// Returns the rights of an entry, with the rights that the mask takes away as capitals.
fn cell(entries: &[(AclTag, u8)], tag: AclTag) -> String {
    let Some((_, perm)) = entries.iter().find(|(there, _)| *there == tag) else {
        return "   ".to_owned();
    };
    let mask = entries
        .iter()
        .find(|(tag, _)| *tag == AclTag::Mask)
        .map_or(7, |(_, perm)| *perm);
    let masked = matches!(tag, AclTag::User(_) | AclTag::GroupObj | AclTag::Group(_));
    let letter = |(bit, letter): (u8, char)| match (perm & bit != 0, masked && mask & bit == 0) {
        (false, _) => '-',
        (true, true) => letter.to_ascii_uppercase(),
        (true, false) => letter,
    };
    [(4, 'r'), (2, 'w'), (1, 'x')].map(letter).iter().collect()
}

#[cfg(test)]
mod tests {
    use super::rows;
    use extern4::AclTag;

    #[test]
    fn rows_are_those_of_getfacl() {
        let access = [
            (AclTag::UserObj, 6),
            (AclTag::User(1), 7),
            (AclTag::GroupObj, 4),
            (AclTag::Mask, 4),
            (AclTag::Other, 4),
        ];
        let name = |tag| match tag {
            AclTag::User(_) => "daemon".to_owned(),
            AclTag::UserObj | AclTag::GroupObj => "root".to_owned(),
            _ => String::new(),
        };
        let shown = String::from_utf8(rows(&access, &[], name)).expect("text");
        let expected = "USER   root      rw-     \nuser   daemon    rWX     \nGROUP  root      r--     \n\
            mask             r--     \nother            r--     \n";
        assert_eq!(shown, expected);
    }
}
