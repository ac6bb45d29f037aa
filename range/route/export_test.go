package route

import "github.com/tidemarkdb/tidemark/range/route/table"

// What tests outside of the package look at.

const LeftAloneFor = table.LeftAloneFor

var ErrTooOldAnswer = errTooOld

// RedirectsBecauseOf, NearOutcomes and NearReads read the metrics of reads that any replica may
// answer.
func (s *Sender) RedirectsBecauseOf(reason string) float64 {
	return s.metrics.near.redirects.With(reason).Value()
}

func (s *Sender) NearOutcomes(outcome string) float64 {
	return s.metrics.near.outcomes.With(outcome).Value()
}

func (s *Sender) NearReads(kind string) float64 { return s.metrics.near.reads.With(kind).Value() }
