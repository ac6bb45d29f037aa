//go:build planted && planted_decision_not_durable

package planted

const active = DecisionNotDurable
