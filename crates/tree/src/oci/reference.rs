//! Names of images: whether a name that the user gives is that of an image.
//!
//! `image` asks [`matches`] for each image of a layout or an archive. A user may leave out the
//! front of a name: `alpine:3.20` is `docker.io/library/alpine:3.20`, and `3.20` as well.
//!
//! Sources: the OCI Image Format Specification 1.1, "Pre-Defined Annotation Keys"; the reference
//! documentation of Docker, "docker image tag", for the registry and the tag that a name implies.

/// The front of names in the registry of Docker, which `docker save` leaves out and others write.
const DEFAULT_REGISTRY: [&str; 2] = ["docker.io/library/", "docker.io/"];

/// The tag of a name that has none.
const DEFAULT_TAG: &str = ":latest";

/// How well a name is that of an image.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Match {
    No,
    /// The image's name ends so.
    End,
    /// It is the image's name, or its digest.
    Whole,
}

/// Returns how well the reference is the name or the digest of an image with these names.
pub(super) fn matches<'n>(
    names: impl Iterator<Item = &'n str>,
    digest: Option<&str>,
    reference: &str,
) -> Match {
    // `@sha256:...`, or a name before it, which the digest makes superfluous.
    let wanted = reference
        .rsplit_once('@')
        .map_or(reference, |(_, digest)| digest);
    if digest.is_some_and(|digest| digest == wanted) {
        return Match::Whole;
    }
    names
        .map(|name| matches_name(name, reference))
        .max()
        .unwrap_or(Match::No)
}

fn matches_name(name: &str, reference: &str) -> Match {
    let wanted = short(reference);
    let name = short(name);
    if name == wanted || name.strip_suffix(DEFAULT_TAG) == Some(wanted) {
        return Match::Whole;
    }
    let ends = |name: &str| {
        let front = name.strip_suffix(wanted);
        front.is_some_and(|front| front.ends_with(['/', ':']))
    };
    if ends(name) || name.strip_suffix(DEFAULT_TAG).is_some_and(ends) {
        Match::End
    } else {
        Match::No
    }
}

/// Returns a name without the default registry.
fn short(name: &str) -> &str {
    DEFAULT_REGISTRY
        .iter()
        .find_map(|front| name.strip_prefix(front))
        .unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::{Match, matches};

    #[test]
    fn names_match_references() {
        let check = |name: &str, reference: &str, expected| {
            assert_eq!(
                matches([name].into_iter(), None, reference),
                expected,
                "{name} {reference}"
            );
        };
        check(
            "docker.io/library/two:latest",
            "docker.io/library/two:latest",
            Match::Whole,
        );
        check("docker.io/library/two:latest", "two:latest", Match::Whole);
        check("docker.io/library/two:latest", "two", Match::Whole);
        check("two:latest", "docker.io/library/two:latest", Match::Whole);
        check("docker.io/library/two:latest", "latest", Match::End);
        check("quay.io/a/two:1", "two:1", Match::End);
        check("quay.io/a/two:latest", "two", Match::End);
        check("quay.io/a/two:1", "a/two:1", Match::End);
        check("quay.io/a/two:1", "wo:1", Match::No);
        check("quay.io/a/two:1", "two", Match::No);
        check("v1", "v1", Match::Whole);
        check("v1", "1", Match::No);
        check("", "x", Match::No);
        let digest = |reference| matches(["x"].into_iter(), Some("sha256:00"), reference);
        assert_eq!(digest("sha256:00"), Match::Whole);
        assert_eq!(digest("@sha256:00"), Match::Whole);
        assert_eq!(digest("quay.io/x@sha256:00"), Match::Whole);
        assert_eq!(digest("sha256:01"), Match::No);
    }
}
