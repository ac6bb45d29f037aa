package planted

// Active is the name of the planted mistake in this build; empty in every regular build. An overlay
// replaces this file.
const Active = ""
