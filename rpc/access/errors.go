package access

// Reason is why a client may not.
type Reason int

// The reasons.
const (
	// Unauthenticated: no token or certificate was shown, or none that counts (any more). A client
	// that shows a new token may ask again.
	Unauthenticated Reason = iota + 1
	// Denied: the user has no permission for that.
	Denied
	// Unknown: this server cannot say, because it has not heard from the core for too long. Another
	// server, or this one later, may.
	Unknown
)

// Error is the refusal of a request. Nothing of the request was done.
type Error struct {
	Reason Reason
	// Text says which user needs which right to what.
	Text string
}

// Error implements error.
func (e *Error) Error() string { return e.Text }
