//go:build !planted_any

package planted

// Active is the mistake that this build makes.
const Active = active
