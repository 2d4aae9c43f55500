"""Find Java and Go, run build tools, and fetch artifacts by their Maven coordinates."""
