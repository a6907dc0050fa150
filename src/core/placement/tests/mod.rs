//! What placement promises, tried from outside: through [`super::plan`] alone.

mod bounds;
mod cases;
mod explain;
mod golden;
mod standings;
mod weighed;
mod world;
mod zones;
