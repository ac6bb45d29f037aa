package sim

// Shrink finds a small part of the faults with which a run still fails, by delta debugging (Zeller
// and Hildebrandt, Simplifying and Isolating Failure-Inducing Input, 2002). It removes faults,
// first halves and then ever smaller parts, as long as failing says that the remaining faults fail.
// In the end no single fault can be removed. Runs of one schedule are not all alike. So failing may
// have to run a schedule several times, and may be wrong; then more faults remain than are needed.
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
