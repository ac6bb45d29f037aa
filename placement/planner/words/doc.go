// Package words writes names and amounts as the planner shows them to people.
package words
