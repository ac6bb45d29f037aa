package history

import (
	"fmt"
	"math"

	"github.com/anishathalye/porcupine"
)

// register is porcupine's model of one key. The state is a State. The input is an Operation
// together with its answer, so there is no output.
var register = porcupine.Model{
	Init: func() any { return Absent },
	Step: func(state, input, _ any) (bool, any) {
		return step(state.(State), input.(Operation))
	},
	DescribeOperation: func(input, _ any) string { return input.(Operation).describe() },
	DescribeState:     func(state any) string { return fmt.Sprint(state) },
}

// step says whether the operation may have had its answer in this state, and what the state is
// afterwards.
//
// An operation with unknown outcome is given its effect here and may be placed as late as the end
// of the history (porcupineHistory): there no client sees it any more, which is the same as if it
// never took effect.
func step(state State, o Operation) (bool, State) {
	known := o.Outcome == Done
	switch o.Kind {
	case Get:
		return !known || o.Found == state, state
	case Put:
		return true, o.New
	case Delete:
		return !known || o.Existed == state.Present, Absent
	case CompareAndSwap:
		matches := state == o.Expected
		if known && (matches != o.Swapped || (!matches && o.Found != state)) {
			return false, state
		}
		if matches {
			return true, o.New
		}
		return true, state
	default:
		return false, state
	}
}

// porcupineHistory converts the history of one key for porcupine. It leaves out operations without
// effect: refused operations, and reads without an answer.
func porcupineHistory(operations []Operation) []porcupine.Operation {
	var converted []porcupine.Operation
	for _, o := range operations {
		if o.Outcome == Refused || (o.Outcome == Unknown && !o.writes()) {
			continue
		}
		end := o.Return
		if o.Outcome == Unknown {
			end = math.MaxInt64
		}
		converted = append(converted, porcupine.Operation{ClientId: o.Client, Input: o,
			Call: o.Call, Return: end})
	}
	return converted
}

// withoutUnseen leaves out writes of unknown outcome whose value no client ever saw or expected.
// Such a write explains no answer, so the result of the check is the same without it. But every
// such write doubles the work, because it may be placed anywhere.
//
// A Delete shows only whether there was a value, not which. So if a Delete found a value, every
// write stays.
func withoutUnseen(operations []Operation) []Operation {
	seen := make(map[State]bool)
	for _, o := range operations {
		if o.Outcome == Refused {
			continue
		}
		switch o.Kind {
		case Get:
			seen[o.Found] = true
		case Delete:
			if o.Outcome == Done && o.Existed {
				return operations
			}
		case CompareAndSwap:
			seen[o.Found], seen[o.Expected] = true, true
		}
	}
	var kept []Operation
	for _, o := range operations {
		if o.Outcome == Unknown && o.New.Present && !seen[o.New] {
			continue
		}
		kept = append(kept, o)
	}
	return kept
}
