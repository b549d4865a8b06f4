//! What a capture has recorded, and the form in which it can be launched.

use crate::result::{graph, Handle};
use crate::shared::{Kind, Owned};
use crate::HipError;

/// What a capture has recorded.
#[derive(Debug)]
pub struct Recording {
    owned: Owned,
    device: u32,
}

impl Recording {
    pub(crate) const fn new(owned: Owned, device: u32) -> Self {
        Self { owned, device }
    }

    /// Makes it ready to launch.
    pub fn instantiate(self) -> Result<Graph, HipError> {
        let shared = self.owned.shared.clone();
        // An instance takes what it needs of the thread's device.
        let _scope = shared.enter(self.device)?;
        let instance = graph::instantiate(&shared.functions, self.owned.handle())?;
        let made = Graph { owned: Owned::new(&shared, Kind::GraphInstance, instance) };
        self.owned.release()?;
        Ok(made)
    }

    /// Gives it back and says how that went.
    pub fn release(self) -> Result<(), HipError> {
        self.owned.release()
    }
}

/// A graph that can be launched.
#[derive(Debug)]
pub struct Graph {
    owned: Owned,
}

impl Graph {
    pub(crate) fn handle(&self) -> Handle {
        self.owned.handle()
    }

    /// Gives it back, once it runs no more, and says how that went.
    pub fn release(self) -> Result<(), HipError> {
        self.owned.release()
    }
}
