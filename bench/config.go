package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Config configures a run. A zero field means its default.
type Config struct {
	Workload Workload
	// Clients is the number of concurrent closed loops. The default is 16.
	Clients int
	// Records is the number of records at the start of the run. The default is 100,000.
	Records uint64
	// ValueSize is the length of every value, in bytes. Default 256; negative means empty values.
	ValueSize int
	// WarmUp is the time for which the workload runs without measurement. The default is 2 s. A
	// negative value means no warm-up.
	WarmUp time.Duration
	// Duration is the measured window. Default 10 s.
	Duration time.Duration
	// OperationTimeout is the minimum time that an operation is given. It may be given up to twice as
	// much. The default is 10 s.
	OperationTimeout time.Duration
	// Seed makes the run repeatable: each client draws the same operations in the same order. The
	// default is 1.
	Seed uint64
	// KeyPrefix is the prefix of every key. The default is "user".
	KeyPrefix string
	// SkipLoad skips the load phase, because the records exist already.
	SkipLoad bool
	// Classify returns the class of an error. The default is the function Classify.
	Classify func(error) string
	// Progress, if set, is called every ProgressInterval (default 1 s) and at the end of each
	// phase, from one goroutine at a time.
	Progress         func(Progress)
	ProgressInterval time.Duration
}

// Progress describes a running benchmark.
type Progress struct {
	// Phase is "load", "warm-up" or "measure".
	Phase string
	// Elapsed and Total are durations of the phase. Total is 0 for the load, whose end is not a matter
	// of time.
	Elapsed, Total time.Duration
	// Records and RecordsTotal count the load phase.
	Records, RecordsTotal uint64
	// Rate is the number of successful operations (or records) per second since the last call.
	Rate float64
	// Mean is the mean latency of the successful operations since the last call.
	Mean time.Duration
	// Errors counts the failed operations of the phase.
	Errors uint64
}

const (
	maxClients   = 100_000
	maxValueSize = 8 << 20
)

func (c Config) withDefaults() (Config, error) {
	if c.Clients == 0 {
		c.Clients = 16
	}
	if c.Records == 0 {
		c.Records = 100_000
	}
	switch {
	case c.ValueSize == 0:
		c.ValueSize = 256
	case c.ValueSize < 0:
		c.ValueSize = 0
	}
	switch {
	case c.WarmUp == 0:
		c.WarmUp = 2 * time.Second
	case c.WarmUp < 0:
		c.WarmUp = 0
	}
	if c.Duration == 0 {
		c.Duration = 10 * time.Second
	}
	if c.OperationTimeout == 0 {
		c.OperationTimeout = 10 * time.Second
	}
	if c.Seed == 0 {
		c.Seed = 1
	}
	if c.KeyPrefix == "" {
		c.KeyPrefix = "user"
	}
	if c.Classify == nil {
		c.Classify = Classify
	}
	if c.ProgressInterval == 0 {
		c.ProgressInterval = time.Second
	}
	switch {
	case c.Clients < 0 || c.Clients > maxClients:
		return c, invalid("Clients", c.Clients, "it is 1 to %d", maxClients)
	case c.ValueSize > maxValueSize:
		return c, invalid("ValueSize", c.ValueSize, "it is at most %d bytes", maxValueSize)
	case c.Duration < 0:
		return c, invalid("Duration", c.Duration, "it is positive")
	case c.OperationTimeout < 0:
		return c, invalid("OperationTimeout", c.OperationTimeout, "it is positive")
	}
	return c, c.Workload.validate()
}

// Check returns an error if the configuration of a run is not valid.
func Check(cfg Config) error {
	_, err := cfg.withDefaults()
	return err
}

// Classify returns the classes of errors that do not depend on the store.
func Classify(err error) string {
	switch {
	case errors.Is(err, ErrNotFound):
		return "not found"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	default:
		return "other"
	}
}

// InvalidError reports a field of Config or of a workload with an invalid value, or with a value
// for which the store's records do not have the right locations. Nothing was written.
type InvalidError struct {
	// Field is the name of the field.
	Field string
	Value any
	// Reason says which values are valid.
	Reason string
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("%s %v: %s", e.Field, e.Value,
		e.Reason)
}

func invalid(field string, value any, format string, args ...any) error {
	return &InvalidError{Field: field, Value: value, Reason: fmt.Sprintf(format, args...)}
}
