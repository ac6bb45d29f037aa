//go:build invariants || race

package invariants

// Enabled says that this build has the checks.
const Enabled = true
