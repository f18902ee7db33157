//! What a sender says of its files' extended attributes.
//!
//! **Spec**: `docs/src/protocol.md` section 4 (*extended attributes*).

use std::collections::BTreeMap;

use wire::object::{
    ATTRIBUTE_VALUE_LEN_MAX, ATTRIBUTES_LEN_MAX, AttributeRef, AttributesRef, EntryKind,
    is_attribute_name,
};

use super::{Entry, ManifestError, PathFault};

/// An extended attribute of a file or directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attribute {
    /// The attribute's name with its namespace, such as `user.comment`: 1 to 255 bytes without NUL.
    pub name: Vec<u8>,
    /// The attribute's value, at most 65,536 bytes.
    pub value: Vec<u8>,
}

/// Makes the body of the manifest section that holds the attributes of `entries`; `None` when
/// every entry's [`Entry::attributes`] is `None`.
pub(super) fn section(entries: &[Entry]) -> Result<Option<Vec<u8>>, ManifestError> {
    if entries.iter().all(|entry| entry.attributes.is_none()) {
        return Ok(None);
    }
    let mut numbers: BTreeMap<Vec<AttributeRef<'_>>, u32> = BTreeMap::new();
    let mut sets = Vec::new();
    let mut of = Vec::with_capacity(entries.len());
    let mut bytes = 4 + 4 * entries.len();
    for entry in entries {
        let set = set_of(entry)?;
        if set.is_empty() {
            of.push(0);
            continue;
        }
        let next = u32::try_from(numbers.len() + 1).unwrap_or(u32::MAX);
        let number = *numbers.entry(set).or_insert_with_key(|set| {
            let each = set.iter().map(|it| 5 + it.name.len() + it.value.len());
            bytes += 2 + each.sum::<usize>();
            sets.push(set.clone());
            next
        });
        of.push(number);
        if bytes > ATTRIBUTES_LEN_MAX {
            return Err(ManifestError::Attributes(
                "they take more than 16 MiB, even with equal sets counted once",
            ));
        }
    }
    let mut body = Vec::with_capacity(bytes);
    AttributesRef::emit(&mut body, &sets, of.into_iter());
    Ok(Some(body))
}

/// Checks the attributes of an entry, and returns them sorted, as the section holds them.
fn set_of(entry: &Entry) -> Result<Vec<AttributeRef<'_>>, ManifestError> {
    let attributes = entry.attributes.as_deref().unwrap_or_default();
    let fail = |fault| Err(ManifestError::path(&entry.path, fault));
    let is_link = matches!(entry.kind, EntryKind::Symlink | EntryKind::HardLink);
    if is_link && !attributes.is_empty() {
        return fail(PathFault::ExtendedAttributes);
    }
    if !attributes.iter().all(|it| is_attribute_name(&it.name)) {
        return fail(PathFault::AttributeForm);
    }
    let is_long = |it: &Attribute| it.value.len() > ATTRIBUTE_VALUE_LEN_MAX;
    if attributes.iter().any(is_long) {
        return fail(PathFault::AttributeTooLong);
    }
    let mut set: Vec<AttributeRef<'_>> = attributes
        .iter()
        .map(|Attribute { name, value }| AttributeRef { name, value })
        .collect();
    set.sort_unstable();
    let is_doubled = set.windows(2).any(|pair| pair[0].name == pair[1].name);
    if is_doubled {
        return fail(PathFault::AttributeTwice);
    }
    if set.len() > usize::from(u16::MAX) {
        return fail(PathFault::AttributeCount);
    }
    Ok(set)
}
