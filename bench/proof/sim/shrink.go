package sim

// Shrink finds a small part of some faults with which a run still fails: delta debugging. It takes
// faults away, halves first and then ever smaller parts, for as long as failing says that what is
// left fails; with none left out no single part of the last size can be taken away. As runs of one
// schedule are not all alike, failing may have to try more than once, and be wrong: then more
// faults remain than are needed. (Zeller and Hildebrandt, Simplifying and Isolating
// Failure-Inducing Input, 2002.)
func Shrink(faults []Fault, failing func([]Fault) bool) []Fault {
	for parts := 2; len(faults) > 0; {
		size := (len(faults) + parts - 1) / parts
		removed := false
		for from := 0; from < len(faults); from += size {
			rest := append(append([]Fault{}, faults[:from]...),
				faults[min(from+size, len(faults)):]...)
			if failing(rest) {
				faults, removed = rest, true
				break
			}
		}
		switch {
		case removed:
			parts = max(parts-1, 2)
		case size == 1:
			return faults
		default:
			parts = min(2*parts, len(faults))
		}
	}
	return faults
}
