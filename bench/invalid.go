package bench

import "fmt"

// InvalidError is a field of Config or of a workload with a value that makes no sense, or for which
// the store's records do not lie right. Nothing was written.
type InvalidError struct {
	// Field is its name.
	Field string
	Value any
	// Reason says what would be right.
	Reason string
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("%s %v: %s", e.Field, e.Value,
		e.Reason)
}

func invalid(field string, value any, format string, args ...any) error {
	return &InvalidError{Field: field, Value: value, Reason: fmt.Sprintf(format, args...)}
}
