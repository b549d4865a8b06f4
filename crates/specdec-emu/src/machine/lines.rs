//! Line tables: a pc to the chain of inlined functions there.

use std::collections::HashMap;

use addr2line::gimli::{EndianSlice, LittleEndian};
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};

use super::location::SourceLine;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// The line tables of one code object, opened when an error needs them.
pub(super) struct Lines<'a> {
    context: Option<addr2line::Context<Slice<'a>>>,
    /// Functions of the symbol table: start, end, name.
    symbols: Vec<(u64, u64, String)>,
    seen: HashMap<u64, Vec<SourceLine>>,
}

impl<'a> Lines<'a> {
    /// Opens the tables of `elf`; a code object without them gives empty chains.
    pub fn open(elf: &'a [u8]) -> Self {
        let file = object::File::parse(elf).ok();
        let context = file.as_ref().and_then(|file| {
            let section = |id: addr2line::gimli::SectionId| -> Result<Slice<'a>, addr2line::gimli::Error> {
                let data = file.section_by_name(id.name()).and_then(|section| section.data().ok()).unwrap_or(&[]);
                Ok(EndianSlice::new(data, LittleEndian))
            };
            let dwarf = addr2line::gimli::Dwarf::load(section).ok()?;
            addr2line::Context::from_dwarf(dwarf).ok()
        });
        let symbols = file.as_ref().map(function_symbols).unwrap_or_default();
        Self { context, symbols, seen: HashMap::new() }
    }

    /// The symbol that covers an address. A function that inlines nothing has a line table and no other entry.
    fn symbol(&self, address: u64) -> Option<&str> {
        let mut symbols = self.symbols.iter();
        symbols.find(|(start, end, _)| (*start..*end).contains(&address)).map(|(_, _, name)| name.as_str())
    }

    /// The functions at a virtual address, innermost first.
    pub fn functions(&mut self, address: u64) -> Vec<SourceLine> {
        if let Some(known) = self.seen.get(&address) {
            return known.clone();
        }
        let chain = self.look_up(address).unwrap_or_default();
        self.seen.insert(address, chain.clone());
        chain
    }

    fn look_up(&self, address: u64) -> Option<Vec<SourceLine>> {
        let mut frames = self.context.as_ref()?.find_frames(address).skip_all_loads().ok()?;
        let mut chain = Vec::new();
        while let Ok(Some(frame)) = frames.next() {
            let function = frame.function.and_then(|name| name.raw_name().ok().map(std::borrow::Cow::into_owned));
            let (file, line) = frame.location.map_or((None, None), |location| (location.file, location.line));
            chain.push(SourceLine {
                function: function.unwrap_or_else(|| self.symbol(address).unwrap_or("?").into()),
                file: file.unwrap_or("?").into(),
                line: line.unwrap_or(0),
            });
        }
        Some(chain)
    }
}

/// Start, end and name of the functions in the symbol table.
fn function_symbols(file: &object::File) -> Vec<(u64, u64, String)> {
    let functions = file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text);
    let named = functions.filter_map(|symbol| {
        let end = symbol.address().checked_add(symbol.size())?;
        Some((symbol.address(), end, symbol.name().ok()?.to_owned()))
    });
    named.collect()
}
