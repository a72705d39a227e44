//! The UUID that a user asks for: its digits, or how to choose one.
//!
//! clap calls [`uuid`] for the options of `mkfs`, `build` and `tune`.

use std::io;

use extern4_mkfs::{random_uuid, time_uuid};

/// A UUID, or the way to choose one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Uuid {
    Random,
    /// Of the current time.
    Time,
    Exactly([u8; 16]),
}

impl Uuid {
    /// Returns its bytes. A UUID that is not given exactly is another one at each call.
    pub(crate) fn bytes(self) -> io::Result<[u8; 16]> {
        match self {
            Self::Random => random_uuid(),
            Self::Time => time_uuid(),
            Self::Exactly(uuid) => Ok(uuid),
        }
    }
}

/// Reads the value of an option.
pub(crate) fn uuid(text: &str) -> Result<Uuid, String> {
    match text {
        "random" => return Ok(Uuid::Random),
        "time" => return Ok(Uuid::Time),
        "clear" | "null" => return Ok(Uuid::Exactly([0; 16])),
        _ => {}
    }
    let dashes = text.len() == 36
        && [8, 13, 18, 23]
            .iter()
            .all(|at| text.as_bytes()[*at] == b'-');
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let plain = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    match u128::from_str_radix(&digits, 16) {
        Ok(number) if dashes && plain => Ok(Uuid::Exactly(number.to_be_bytes())),
        _ => Err(
            "write it as 6c1f4b52-3a0e-4d0c-9c55-0d2a4f6b7e11, random, time or clear".to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_are_read() {
        assert_eq!(uuid("random"), Ok(Uuid::Random));
        assert_eq!(uuid("clear"), Ok(Uuid::Exactly([0; 16])));
        let Ok(Uuid::Exactly(bytes)) = uuid("6c1f4b52-3a0e-4d0c-9c55-0d2a4f6b7e11") else {
            panic!("a UUID")
        };
        assert_eq!((bytes[0], bytes[15]), (0x6c, 0x11));
        for bad in [
            "",
            "6c1f4b523a0e4d0c9c550d2a4f6b7e11",
            "6c1f4b52-3a0e-4d0c-9c55-0d2a4f6b7e1g",
            "+c1f4b52-3a0e-4d0c-9c55-0d2a4f6b7e11",
        ] {
            assert!(uuid(bad).is_err(), "{bad}");
        }
    }
}
