package planted

// Active is the mistake that this build carries; empty in every proper build. An overlay replaces
// this file.
const Active = ""
