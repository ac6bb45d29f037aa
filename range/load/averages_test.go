package load

import (
	"math"
	"testing"
	"time"
)

// meter feeds Averages with a load, 3 s at a time.
type meter struct {
	Averages
	now    time.Time
	totals Totals
}

func (m *meter) work(load float64, span time.Duration) {
	for range span / (3 * time.Second) {
		m.now = m.now.Add(3 * time.Second)
		m.totals.Led += time.Duration(load * 2 * float64(time.Second))
		m.totals.Applied += time.Duration(load * float64(time.Second))
		m.totals.Reads += 300
		m.totals.Writes += 30
		m.totals.ReadBytes += 3000
		m.totals.WrittenBytes += 300
		m.Add(m.now, m.totals)
	}
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 0.1*want+0.005 {
		t.Errorf("%s is %.3f, want %.3f", what, got, want)
	}
}

// A load that changes shows in the averages at their pace, and in windows and peaks at theirs.
func TestAverages(t *testing.T) {
	m := meter{now: time.Unix(10_000, 0)}
	m.Reset(m.now, m.totals)
	m.work(0.5, 60*time.Second)
	near(t, "a minute", m.Minute.Load(), 0.5)
	near(t, "five minutes", m.Five.Load(), 0.5)
	near(t, "reads", m.Minute.Reads, 100)
	near(t, "writes", m.Minute.Writes, 10)
	near(t, "bytes read", m.Minute.ReadBytes, 1000)
	near(t, "bytes written", m.Five.WrittenBytes, 100)
	if got := m.Measured(m.now); got != time.Minute {
		t.Errorf("measured for %s", got)
	}
	if m.Sustained() != 0 {
		t.Errorf("%.2f sustained for less than three windows", m.Sustained())
	}
	m.work(0.5, 9*time.Second)
	near(t, "what is sustained", m.Sustained(), 0.5)
	// One quiet window is enough.
	m.work(0, 45*time.Second)
	if s := m.Sustained(); s > 0.3 {
		t.Errorf("%.2f sustained, with a quiet window", s)
	}
	near(t, "the peak", m.Peak(), 0.5)
	m.work(0, 11*time.Minute)
	if m.Peak() != 0 || m.Sustained() != 0 {
		t.Errorf("peak %.2f, sustained %.2f after eleven quiet minutes", m.Peak(), m.Sustained())
	}
	near(t, "a minute", m.Minute.Load(), 0)
	if five := m.Five.Load(); five <= 0 || five > 0.1 {
		t.Errorf("%.3f over five minutes", five)
	}
	m.work(1, 90*time.Second)
	m.Reset(m.now, m.totals)
	m.work(0.1, 90*time.Second)
	near(t, "a minute after a reset", m.Minute.Load(), 0.1)
	near(t, "the peak after a reset", m.Peak(), 0.1)
}

// A gap in the samples, as of a process that was suspended, leaves no peak behind and breaks
// nothing.
func TestAveragesOverAGap(t *testing.T) {
	m := meter{now: time.Unix(10_000, 0)}
	m.Reset(m.now, m.totals)
	m.work(2, 2*time.Minute)
	m.now = m.now.Add(time.Hour)
	m.Add(m.now, m.totals)
	if m.Peak() > 0.1 {
		t.Errorf("a peak of %.2f, an hour later", m.Peak())
	}
}
