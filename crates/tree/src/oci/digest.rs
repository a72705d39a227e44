//! [`Digest`]: the digest of a blob, SHA-256 or SHA-512, parsed and verified.
//!
//! `image`, `files` and `layer` use it. A digest in JSON becomes the path of a file, so only the
//! exact number of lower-case hexadecimal digits is accepted.

use std::io::{self, Read};

use sha2::{Sha256, Sha512};

const BUFFER: usize = 128 << 10;

/// A digest: an algorithm and hexadecimal digits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Digest {
    algorithm: Algorithm,
    hex: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Algorithm {
    Sha256,
    Sha512,
}

impl Digest {
    /// Parses a digest. The error says what is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (algorithm, hex) = text.split_once(':').unwrap_or_default();
        let (algorithm, length) = match algorithm {
            "sha256" => (Algorithm::Sha256, 64),
            "sha512" => (Algorithm::Sha512, 128),
            _ => return Err(format!("the digest '{text}' is of an unknown algorithm")),
        };
        // The digits become the name of a file.
        if hex.len() != length || !hex.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(format!("the digest '{text}' is damaged"));
        }
        Ok(Self { algorithm, hex: hex.to_owned() })
    }

    /// Returns the path of the blob in a layout.
    pub(super) fn path(&self) -> String {
        format!("blobs/{}/{}", self.algorithm(), self.hex)
    }

    fn algorithm(&self) -> &'static str {
        match self.algorithm {
            Algorithm::Sha256 => "sha256",
            Algorithm::Sha512 => "sha512",
        }
    }

    /// Whether the bytes have this digest.
    pub(super) fn is_of(&self, bytes: impl Read) -> io::Result<bool> {
        let hex = match self.algorithm {
            Algorithm::Sha256 => hash::<Sha256>(bytes)?,
            Algorithm::Sha512 => hash::<Sha512>(bytes)?,
        };
        Ok(hex == self.hex)
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}:{}", self.algorithm(), self.hex)
    }
}

fn hash<H: sha2::Digest>(mut bytes: impl Read) -> io::Result<String> {
    let mut hash = H::new();
    let mut buf = vec![0; BUFFER];
    loop {
        match bytes.read(&mut buf) {
            Ok(0) => break,
            Ok(read) => hash.update(&buf[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(hex(hash))
}

/// Returns the hexadecimal digits of a hash.
pub(super) fn hex<H: sha2::Digest>(hash: H) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_compared() {
        let sha256 = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let digest = Digest::parse(sha256).unwrap();
        assert!(digest.is_of(&b"abc"[..]).unwrap());
        assert!(!digest.is_of(&b"abd"[..]).unwrap());
        assert_eq!(digest.to_string(), sha256);
        assert_eq!(digest.path(), sha256.replace("sha256:", "blobs/sha256/"));
        for wrong in ["", "sha256:", "md5:00", "sha256:../../x", &sha256[1..], &sha256.replace('b', "B")] {
            assert!(Digest::parse(wrong).is_err(), "{wrong}");
        }
    }
}
