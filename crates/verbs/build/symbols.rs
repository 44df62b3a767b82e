//! Reads `symbols.txt` and writes what follows from it: version maps, filter libraries, stubs.
//!
//! Shared by the build script (stubs), `cargo xtask dist` (maps and filters) and the tests, so that all
//! three mean the same list. Standard library only.
#![allow(dead_code)] // each user takes a part of it

use std::fmt::Write as _;

/// How a function fails; see the head of `symbols.txt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Int,
    Neg,
    Ptr,
    Void,
    Zero,
    Str,
}

/// One exported function.
#[derive(Clone, Debug)]
pub struct Symbol {
    pub name: String,
    pub class: Class,
    /// Implemented in `src/`, not generated.
    pub real: bool,
    /// (argument from 1, bytes) that a stub fills with zeros.
    pub outs: Vec<(usize, usize)>,
    /// Name in `libc` of the errno that a stub fails with.
    pub errno: String,
}

/// A version node and the symbols first exported in it.
#[derive(Clone, Debug)]
pub struct Node {
    pub name: String,
    pub parent: Option<String>,
    pub symbols: Vec<Symbol>,
}

/// The whole list.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    pub nodes: Vec<Node>,
    /// (symbol, node): further versions of a symbol that `nodes` already has.
    pub aliases: Vec<(String, String)>,
}

/// A library made of nothing but names that libibverbs.so.1 defines.
#[derive(Clone, Copy, Debug)]
pub struct Filter {
    pub soname: &'static str,
    /// Prefix of its version nodes.
    pub nodes: &'static str,
    /// Unversioned name that `dlopen` and linkers look for.
    pub link: &'static str,
}

pub const MAIN_SONAME: &str = "libibverbs.so.1";
pub const MAIN_LINK: &str = "libibverbs.so";
pub const FILTERS: [Filter; 4] = [
    Filter { soname: "librdmacm.so.1", nodes: "RDMACM_", link: "librdmacm.so" },
    Filter { soname: "libmlx5.so.1", nodes: "MLX5_", link: "libmlx5.so" },
    Filter { soname: "libefa.so.1", nodes: "EFA_", link: "libefa.so" },
    Filter { soname: "libibumad.so.3", nodes: "IBUMAD_", link: "libibumad.so" },
];

fn class(word: &str) -> Option<Class> {
    Some(match word {
        "int" => Class::Int,
        "neg" => Class::Neg,
        "ptr" => Class::Ptr,
        "void" => Class::Void,
        "zero" => Class::Zero,
        "str" => Class::Str,
        _ => return None,
    })
}

fn symbol(words: &[&str]) -> Option<Symbol> {
    let mut symbol = Symbol {
        name: (*words.first()?).to_string(),
        class: class(words.get(1)?)?,
        real: false,
        outs: Vec::new(),
        errno: "EOPNOTSUPP".to_string(),
    };
    for word in words.get(2..).unwrap_or_default() {
        if *word == "real" {
            symbol.real = true;
        } else if let Some(out) = word.strip_prefix("out=") {
            let (argument, bytes) = out.split_once(':')?;
            symbol.outs.push((argument.parse().ok()?, bytes.parse().ok()?));
        } else {
            symbol.errno = word.strip_prefix("errno=")?.to_string();
        }
    }
    Some(symbol)
}

impl Symbols {
    /// Reads the text of `symbols.txt`.
    pub fn parse(text: &str) -> Result<Symbols, String> {
        let mut all = Symbols::default();
        for (number, line) in text.lines().enumerate() {
            let wrong = || format!("symbols.txt:{}: cannot read {line:?}", number + 1);
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                [] => {}
                [first, ..] if first.starts_with('#') => {}
                ["node", name] => all.add_node(name, None),
                ["node", name, parent] => all.add_node(name, Some(parent)),
                ["each", prefix, first, last, symbol] => {
                    let first: u32 = first.parse().map_err(|_| wrong())?;
                    let last: u32 = last.parse().map_err(|_| wrong())?;
                    for n in first..=last {
                        all.add_version(&format!("{prefix}_{n}"), symbol);
                    }
                }
                words => {
                    let symbol = symbol(words).ok_or_else(wrong)?;
                    all.nodes.last_mut().ok_or_else(wrong)?.symbols.push(symbol);
                }
            }
        }
        Ok(all)
    }

    fn add_node(&mut self, name: &str, parent: Option<&str>) {
        let parent = parent.map(str::to_string);
        self.nodes.push(Node { name: name.to_string(), parent, symbols: Vec::new() });
    }

    /// `symbol` exists in `node` too; the node is made if it is new.
    fn add_version(&mut self, node: &str, symbol: &str) {
        let known = self.nodes.iter().find(|n| n.name == node);
        if known.is_some_and(|n| n.symbols.iter().any(|s| s.name == symbol)) {
            return;
        }
        if known.is_none() {
            self.add_node(node, None);
        }
        self.aliases.push((symbol.to_string(), node.to_string()));
    }

    /// Nodes whose names begin with `prefix`; all of them for the empty prefix.
    pub fn nodes_of<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a Node> {
        self.nodes.iter().filter(move |node| node.name.starts_with(prefix))
    }

    /// Linker version script with the nodes of `prefix`.
    pub fn version_map(&self, prefix: &str) -> String {
        let mut out = String::new();
        for (i, node) in self.nodes_of(prefix).enumerate() {
            let _ = write!(out, "{} {{", node.name);
            if !node.symbols.is_empty() {
                out.push_str(" global:");
                for symbol in &node.symbols {
                    let _ = write!(out, " {};", symbol.name);
                }
            }
            if i == 0 {
                out.push_str(" local: *;");
            }
            let _ = writeln!(out, " }}{};", node.parent.iter().map(|p| format!(" {p}")).collect::<String>());
        }
        out
    }

    /// Assembly that defines every name of the nodes of `prefix` as a trap: the loader binds all of
    /// them to the library that the filter names, so none is ever reached.
    pub fn filter_assembly(&self, prefix: &str, arch: &str) -> Result<String, String> {
        let trap = match arch {
            "x86_64" => "ud2",
            "aarch64" => "brk #0",
            other => return Err(format!("no filter libraries for {other} yet")),
        };
        let mut out = String::from("\t.text\n");
        for symbol in self.nodes_of(prefix).flat_map(|node| &node.symbols) {
            let name = &symbol.name;
            let _ = writeln!(out, "\t.globl {name}\n\t.type {name}, %function\n{name}:\n\t{trap}");
        }
        out.push_str("\t.section .note.GNU-stack,\"\",%progbits\n");
        Ok(out)
    }

    /// Assembly for the further versions of a symbol: a jump each, bound to its node by `.symver`.
    pub fn alias_assembly(&self, arch: &str) -> Result<String, String> {
        let jump = match arch {
            "x86_64" => "jmp",
            "aarch64" => "b",
            other => return Err(format!("no further symbol versions for {other} yet")),
        };
        let mut out = String::from("\t.text\n");
        for (symbol, node) in &self.aliases {
            let local = format!("srdma_{symbol}_{node}");
            let _ = writeln!(
                out,
                "\t.globl {local}\n\t.type {local}, %function\n{local}:\n\t{jump} {symbol}\n\
                 \t.symver {local}, {symbol}@{node}"
            );
        }
        out.push_str("\t.section .note.GNU-stack,\"\",%progbits\n");
        Ok(out)
    }

    /// Rust text of a table of all functions, for a test that calls each: name, class, whether real, bytes that a stub
    /// fills by argument, errno of a stub, address.
    pub fn table(&self) -> String {
        let (mut declared, mut rows) = (String::new(), String::new());
        for Symbol { name, class, real, outs, errno } in self.nodes.iter().flat_map(|node| &node.symbols) {
            let _ = writeln!(declared, "    fn {name}();");
            let _ = writeln!(
                rows,
                "    Export {{ name: {name:?}, class: Class::{class:?}, real: {real}, outs: &{outs:?}, \
                 errno: libc::{errno}, at: {name} }},"
            );
        }
        format!("extern \"C\" {{\n{declared}}}\n\npub const EXPORTS: &[Export] = &[\n{rows}];\n")
    }

    /// Rust text with a definition of each function that `src/` does not implement.
    pub fn stubs(&self) -> String {
        let mut out = String::new();
        for symbol in self.nodes.iter().flat_map(|node| &node.symbols).filter(|s| !s.real) {
            stub(&mut out, symbol);
        }
        out
    }
}

fn stub(out: &mut String, symbol: &Symbol) {
    let Symbol { name, class, outs, errno, .. } = symbol;
    // Integer and pointer arguments travel in registers on the ABIs we build for, so a stub declares
    // only as many as it needs to see.
    let count = outs.iter().map(|(argument, _)| *argument).max().unwrap_or(0);
    let arguments: Vec<String> = (1..=count)
        .map(|i| if outs.iter().any(|o| o.0 == i) { format!("a{i}") } else { format!("_a{i}") } + ": *mut u8")
        .collect();
    let (kind, body) = match class {
        Class::Int => (" -> c_int", format!("fail(libc::{errno})")),
        Class::Neg => (" -> c_int", format!("{{ fail(libc::{errno}); -1 }}")),
        Class::Ptr => (" -> *mut c_void", format!("{{ fail(libc::{errno}); ptr::null_mut() }}")),
        Class::Void => ("", String::new()),
        Class::Zero => (" -> c_int", "0".to_string()),
        Class::Str => (" -> *const c_char", "c\"unknown\".as_ptr()".to_string()),
    };
    let _ = writeln!(
        out,
        "/// Not supported: fails as its manual page says.\n#[no_mangle]\n\
         pub unsafe extern \"C\" fn {name}({}){kind} {{",
        arguments.join(", ")
    );
    for (argument, bytes) in outs {
        let _ = writeln!(
            out,
            "    // SAFETY: by the function's contract the argument is null or points to at least {bytes} writable bytes.\n    \
             unsafe {{ fill(a{argument}, {bytes}) }};"
        );
    }
    let body = if body.is_empty() { body } else { format!("    {body}\n") };
    let _ = writeln!(out, "{body}}}");
}
