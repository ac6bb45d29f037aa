package history

// Take removes the operations on keys for which match says true, and returns them by call: a part
// of the history that is over, to be checked and forgotten. None of them may be pending; a key that
// was taken does not come back.
func (r *Recorder) Take(match func(key string) bool) []Operation {
	r.mu.Lock()
	defer r.mu.Unlock()
	var taken []Operation
	kept := r.mu.operations[:0]
	for _, o := range r.mu.operations {
		if match(o.Key) {
			taken = append(taken, *o)
		} else {
			kept = append(kept, o)
		}
	}
	clear(r.mu.operations[len(kept):])
	r.mu.operations = kept
	return taken
}
