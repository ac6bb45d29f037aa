package metric

import (
	"errors"
	"maps"
	"math"
	"sync"
	"sync/atomic"
)

// Desc describes a collector.
type Desc struct {
	Name, Help string
	// Gauge is set if the value can fall; otherwise it is a counter.
	Gauge bool
	// Labels are the labels of every value.
	Labels map[string]string
	// By is the label that distinguishes the values of a Vec; empty for a single value.
	By string
}

// Collector is a metric with one or several values.
type Collector interface {
	Describe() Desc
	// Collect yields every value, with its value of the label By.
	Collect(yield func(label string, value float64))
}

// Registry holds collectors. Its methods may be called from any goroutine.
type Registry interface {
	// Register fails with a *RegisteredError if a collector with the same name and labels is
	// registered.
	Register(c Collector) error
	// Unregister removes the collector with the name and labels of c.
	Unregister(c Collector)
}

// RegisteredError says that a collector of the same name and labels is registered.
type RegisteredError struct {
	// Existing is the registered collector; nil if it is unknown.
	Existing Collector
}

func (e *RegisteredError) Error() string { return "a metric of this name is registered already" }

// number is a sum whose whole part is added to without a loop.
type number struct {
	whole    atomic.Int64
	fraction atomic.Uint64 // the bits of a float64
}

func (n *number) add(x float64) {
	if whole := int64(x); float64(whole) == x {
		n.whole.Add(whole)
		return
	}
	for {
		old := n.fraction.Load()
		if n.fraction.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+x)) {
			return
		}
	}
}

func (n *number) value() float64 {
	return float64(n.whole.Load()) + math.Float64frombits(n.fraction.Load())
}

// Counter only goes up.
type Counter struct {
	desc Desc
	number
}

// NewCounter makes a counter. It keeps labels.
func NewCounter(name, help string, labels map[string]string) *Counter {
	return &Counter{desc: Desc{Name: name, Help: help, Labels: labels}}
}

// Describe implements Collector.
func (c *Counter) Describe() Desc { return c.desc }

// Collect implements Collector.
func (c *Counter) Collect(yield func(label string, value float64)) { yield("", c.value()) }

// Inc adds one.
func (c *Counter) Inc() { c.whole.Add(1) }

// Add adds x, which is not negative.
func (c *Counter) Add(x float64) { c.add(x) }

// Value returns the count.
func (c *Counter) Value() float64 { return c.value() }

// Gauge goes up and down.
type Gauge struct {
	desc Desc
	n    atomic.Int64
}

// NewGauge makes a gauge. It keeps labels.
func NewGauge(name, help string, labels map[string]string) *Gauge {
	return &Gauge{desc: Desc{Name: name, Help: help, Gauge: true, Labels: labels}}
}

// Describe implements Collector.
func (g *Gauge) Describe() Desc { return g.desc }

// Collect implements Collector.
func (g *Gauge) Collect(yield func(label string, value float64)) { yield("", float64(g.n.Load())) }

// Inc adds one.
func (g *Gauge) Inc() { g.n.Add(1) }

// Dec takes one away.
func (g *Gauge) Dec() { g.n.Add(-1) }

// Vec is a set of counters with one name, distinguished by the value of a label with few values.
type Vec struct {
	desc Desc
	mu   struct {
		sync.Mutex
		counters map[string]*Counter
	}
}

// NewVec makes a Vec without counters.
func NewVec(name, help, by string) *Vec {
	v := &Vec{desc: Desc{Name: name, Help: help, By: by}}
	v.mu.counters = make(map[string]*Counter)
	return v
}

// Describe implements Collector.
func (v *Vec) Describe() Desc { return v.desc }

// Collect implements Collector.
func (v *Vec) Collect(yield func(label string, value float64)) {
	v.mu.Lock()
	counters := maps.Clone(v.mu.counters)
	v.mu.Unlock()
	for label, c := range counters {
		yield(label, c.value())
	}
}

// With returns the counter with a value of the label, and makes it at the first call.
func (v *Vec) With(label string) *Counter {
	v.mu.Lock()
	defer v.mu.Unlock()
	c := v.mu.counters[label]
	if c == nil {
		c = new(Counter)
		v.mu.counters[label] = c
	}
	return c
}

// Register registers a collector, or returns the registered one with the same name and labels.
func Register[C Collector](r Registry, c C) C {
	if r == nil {
		return c
	}
	if err := r.Register(c); err != nil {
		var already *RegisteredError
		if errors.As(err, &already) {
			if existing, ok := already.Existing.(C); ok {
				return existing
			}
		}
	}
	return c
}
