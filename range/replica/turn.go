package replica

// turn is a lock that may be held for as long as others sleep, or wait for messages: a goroutine
// that waits for it waits for a channel, which virtual time (testing/synctest) takes into account.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) lock()   { t <- struct{}{} }
func (t turn) unlock() { <-t }
