//! Catalog, settings and jobs behind one door.
