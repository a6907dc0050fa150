//! What placement promises, tried from outside: through [`super::plan`] alone.

mod bounds;
mod cases;
mod golden;
mod world;
