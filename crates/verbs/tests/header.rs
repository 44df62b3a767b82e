//! Our C structs against the header that is installed: sizes and offsets of every field.
#![allow(clippy::unwrap_used)]

mod ground;

use srdma_verbs::{Layout, LAYOUTS};
use std::fmt::Write as _;
use std::process::Command;

/// Verbs of `verbs_context` that came after the oldest header we compare with (v44).
const NEWER: [&str; 6] =
    ["free_buf", "alloc_buf", "dm_export_dmabuf_fd", "reg_mr_ex", "dealloc_dmah", "alloc_dmah"];

/// `verbs_context` grows at its head, so its fields are compared by their distance from the end.
fn counted_from_end(layout: &Layout) -> bool {
    layout.c_name == "verbs_context"
}

fn fields(layout: &Layout) -> impl Iterator<Item = (&'static str, usize)> {
    // A trailing underscore avoids Rust's reserved words.
    let fields = layout.fields.iter().map(|(name, offset)| (name.trim_end_matches('_'), *offset));
    fields.filter(|(name, _)| !NEWER.contains(name))
}

#[test]
fn every_struct_has_the_size_and_offsets_of_the_installed_header() {
    let mut source = String::from(
        "#include <infiniband/verbs.h>\n#include <stdio.h>\n#include <stddef.h>\nint main(void)\n{\n",
    );
    let mut expected = String::new();
    for layout in LAYOUTS {
        let c = layout.c_name;
        if !counted_from_end(layout) {
            let _ = writeln!(source, "printf(\"{c} %zu\\n\", sizeof(struct {c}));");
            let _ = writeln!(expected, "{c} {}", layout.size);
        }
        for (field, offset) in fields(layout) {
            let (from, ours) = if counted_from_end(layout) {
                (format!("sizeof(struct {c}) - "), layout.size - offset)
            } else {
                (String::new(), offset)
            };
            let _ = writeln!(source, "printf(\"{c}.{field} %zu\\n\", {from}offsetof(struct {c}, {field}));");
            let _ = writeln!(expected, "{c}.{field} {ours}");
        }
    }
    source.push_str("return 0;\n}\n");
    let Some(program) = ground::compile("layout", &source, &[]) else { return };
    let found = ground::output(&mut Command::new(program));
    assert!(found.lines().count() > 300, "only {} values compared", found.lines().count());
    for (ours, theirs) in expected.lines().zip(found.lines()) {
        assert_eq!(ours, theirs, "left is ours, right the header's");
    }
    assert_eq!(expected.lines().count(), found.lines().count());
}
