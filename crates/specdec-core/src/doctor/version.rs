//! Versions, compared as numbers: 7.14 is newer than 7.2, and 10.0 than both.

use std::cmp::Ordering;
use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Words with which a suffix marks something older than the release it leads to.
const PRE_RELEASE: [&str; 7] = ["rc", "alpha", "beta", "dev", "pre", "a", "b"];

/// A version as drivers, libraries and packages write them: numbers between dots, then perhaps a suffix.
///
/// Ordered by its numbers (a missing one is 0); of equal numbers, a pre-release is older. Build numbers and local labels
/// (`7.2.0-43`, `2.10.0+rocm7.2`) are kept and shown but make no difference.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Version {
    numbers: Vec<u32>,
    suffix: String,
}

/// A text that is no version.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown version format `{text}`, expected numbers between dots, like `7.2.3` or `10.0`")]
pub struct VersionError {
    /// The text.
    pub text: String,
}

impl Version {
    /// A release: numbers only.
    pub fn release(numbers: &[u32]) -> Self {
        Self { numbers: numbers.to_vec(), suffix: String::new() }
    }

    /// HIP's number for a version: ten millions are the major, hundred thousands the minor, the rest the patch.
    pub fn from_hip(number: u32) -> Self {
        Self::release(&[number / 10_000_000, number / 100_000 % 100, number % 100_000])
    }

    /// Whether the first numbers are these, as 0.33.1 is a 0.33.
    pub fn starts_with(&self, numbers: &[u32]) -> bool {
        let padded = self.numbers.iter().copied().chain(std::iter::repeat(0));
        padded.zip(numbers).all(|(own, wanted)| own == *wanted)
    }

    /// Whether this precedes the release that its numbers name.
    pub fn is_pre_release(&self) -> bool {
        let public = self.suffix.split('+').next().unwrap_or_default();
        let words = public.split(|c: char| !c.is_ascii_alphabetic());
        words.into_iter().any(|word| PRE_RELEASE.contains(&word.to_ascii_lowercase().as_str()))
    }

    fn significant(&self) -> &[u32] {
        let end = self.numbers.iter().rposition(|number| *number != 0).map_or(0, |last| last + 1);
        &self.numbers[..end]
    }
}

impl std::str::FromStr for Version {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, VersionError> {
        let error = || VersionError { text: text.into() };
        let trimmed = text.trim();
        let mut rest = trimmed.strip_prefix('v').unwrap_or(trimmed);
        let mut numbers = Vec::new();
        loop {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            numbers.push(rest[..digits].parse().map_err(|_| error())?);
            rest = &rest[digits..];
            match rest.strip_prefix('.') {
                Some(next) if next.starts_with(|c: char| c.is_ascii_digit()) => rest = next,
                _ => break,
            }
        }
        let is_suffix =
            rest.is_empty() || rest.starts_with(['-', '+', '.', '_']) || rest.starts_with(char::is_alphabetic);
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-+._~".contains(c);
        let ends_open = rest.len() == 1 && !rest.starts_with(char::is_alphabetic);
        // One number alone is more often something else, a build or a date.
        if numbers.len() < 2 || !is_suffix || ends_open || !rest.chars().all(allowed) {
            return Err(error());
        }
        Ok(Self { numbers, suffix: rest.into() })
    }
}

impl TryFrom<String> for Version {
    type Error = VersionError;

    fn try_from(text: String) -> Result<Self, VersionError> {
        text.parse()
    }
}

impl From<Version> for String {
    fn from(version: Version) -> Self {
        version.to_string()
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.numbers.iter().map(u32::to_string).collect();
        write!(f, "{}{}", numbers.join("."), self.suffix)
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_numbers = self.significant().cmp(other.significant());
        by_numbers.then_with(|| other.is_pre_release().cmp(&self.is_pre_release()))
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Version {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn version(text: &str) -> Version {
        text.parse().unwrap()
    }

    #[test]
    fn numbers_count_and_not_letters() {
        let ascending = ["6.4", "7.0.1", "7.0.2", "7.2.0rc1", "7.2", "7.2.3", "7.14.0-rc1", "7.14.0", "10.0", "10.0.1"];
        for pair in ascending.windows(2) {
            assert!(version(pair[0]) < version(pair[1]), "{pair:?}");
        }
        assert_eq!(version("7.2"), version("7.2.0.0"));
        assert_eq!(version("7.2.0-43"), version("7.2.0"));
        assert_eq!(version("2.10.0+rocm7.2.0a1"), version("v2.10.0"));
    }

    #[test]
    fn what_people_ship_is_read_and_shown_again() {
        for text in ["7.2.3", "7.2.0-43", "7.14.0a20260101", "0.33.1rc2.dev12+g0a1b2c", "2.10.0a0+git85", "0.1.7.post1"]
        {
            assert_eq!(version(text).to_string(), text);
        }
        assert!(version("7.14.0a20260101").is_pre_release());
        assert!(!version("0.1.7.post1").is_pre_release());
        assert_eq!(Version::from_hip(70_226_015).to_string(), "7.2.26015");
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            " ",
            "7",
            "7.",
            "banana",
            "7.2 3",
            "-1.2",
            "7..2",
            "99999999999.1",
            "1!2.0",
            "7.2.",
            "7.2+",
            "7.2.\u{fc}",
        ] {
            let error = text.parse::<Version>().unwrap_err();
            assert_eq!(error.text, text);
        }
    }

    #[test]
    fn a_version_belongs_to_a_series() {
        assert!(version("0.33.1rc1").starts_with(&[0, 33]));
        assert!(!version("0.3.3").starts_with(&[0, 33]));
        assert!(version("10.0").starts_with(&[10, 0, 0]));
    }

    fn numbers() -> impl Strategy<Value = Vec<u32>> {
        prop::collection::vec(prop_oneof![0_u32..20, any::<u32>()], 2..5)
    }

    fn any_version() -> impl Strategy<Value = Version> {
        let suffix = prop_oneof![
            Just(""),
            Just("rc1"),
            Just("-rc.2"),
            Just("-43"),
            Just("+rocm7.2"),
            Just(".post1"),
            Just("a0+g1")
        ];
        (numbers(), suffix).prop_map(|(numbers, suffix)| Version { numbers, suffix: suffix.into() })
    }

    proptest! {
        #[test]
        fn releases_compare_as_their_numbers(left in numbers(), right in numbers()) {
            let mut padded = (left.clone(), right.clone());
            padded.0.resize(5, 0);
            padded.1.resize(5, 0);
            prop_assert_eq!(Version::release(&left).cmp(&Version::release(&right)), padded.0.cmp(&padded.1));
        }

        #[test]
        fn the_order_is_total(a in any_version(), b in any_version(), c in any_version()) {
            prop_assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
            prop_assert_eq!(a == b, a.cmp(&b) == Ordering::Equal);
            prop_assert!(!(a <= b && b <= c) || a <= c);
        }

        #[test]
        fn a_text_and_its_version_are_one(version in any_version()) {
            let again: Version = version.to_string().parse().unwrap();
            prop_assert_eq!(&again.numbers, &version.numbers);
            prop_assert_eq!(&again.suffix, &version.suffix);
        }

        #[test]
        fn no_text_panics(text in ".*") {
            let read = text.parse::<Version>();
            prop_assert!(read.is_ok() || read.is_err_and(|error| error.text == text));
        }
    }
}
