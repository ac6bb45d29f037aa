package revisions

import "fmt"

// writer is the operation that writes a value; then says whether its branch Then writes it.
type writer struct {
	operation *Operation
	then      bool
}

// resolve finds the revisions at which operations of unknown outcome took effect, by the values
// that clients saw. It complains of values that no client can have seen.
func resolve(operations []Operation) (complaints []string) {
	writers := make(map[string]writer)
	for i := range operations {
		o := &operations[i]
		for _, a := range o.Then {
			if a.Kind == Put {
				writers[a.Value] = writer{o, true}
			}
		}
		for _, a := range o.Else {
			if a.Kind == Put {
				writers[a.Value] = writer{o, false}
			}
		}
	}
	for i := range operations {
		reader := &operations[i]
		if reader.Outcome != Done {
			continue
		}
		for _, pairs := range reader.Found {
			for _, p := range pairs {
				w, known := writers[p.Value]
				if !known {
					complaints = append(complaints,
						fmt.Sprintf("no client wrote %v, and it was read: %v", p, reader))
				} else if why := w.seen(p, reader); why != "" {
					complaints = append(complaints, fmt.Sprintf("%s\n  read: %v\n  written: %v", why,
						reader, w.operation))
				}
			}
		}
	}
	return complaints
}

// seen notes that a reader has seen a value of the writer. It says why that is impossible; empty if
// possible.
func (w writer) seen(p Pair, reader *Operation) (why string) {
	o := w.operation
	switch {
	case o.Outcome == Refused:
		return "what was refused has been read"
	case o.Call > reader.Return:
		return "what was read had not been written yet"
	case o.Outcome == Done && (o.Succeeded != w.then || o.Revision != p.Mod):
		return "what was written at one revision, or not at all, was read with another one"
	case o.Outcome == Unknown && o.at != 0 && o.at != p.Mod:
		return fmt.Sprintf("what was written once was read with revision %d and with revision %d",
			o.at, p.Mod)
	case o.Outcome == Unknown:
		o.at = p.Mod
	}
	return ""
}
