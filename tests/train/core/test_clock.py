"""The time of a training."""

from grls.train.core.clock import TrainingClock, TrainingStep


class Time:
    """A time that passes when a test says so."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_it_ends_where_another_step_and_a_measurement_do_not_fit() -> None:
    time = Time()
    clock = TrainingClock("chains", 20, now=time)
    time.now += 4  # reading the data
    clock.start(0, 10)
    time.now += 2
    assert not clock.stepped(1)
    with clock.measuring():
        time.now += 5
    time.now += 2
    assert not clock.stepped(2)  # at 13 s: 2 s for a step and 5 s for a measurement fit exactly
    time.now += 2
    assert clock.stepped(3)
    assert clock.time_is_up
    assert clock.seconds == 15


def test_a_tenth_of_the_time_is_kept_for_the_first_measurement() -> None:
    time = Time()
    clock = TrainingClock("chains", 100, now=time)
    clock.start(0, None)
    time.now += 45
    assert not clock.stepped(1)  # 45 s for another step and 10 s for dev fit exactly
    time.now += 1
    assert clock.stepped(2) is False  # a step takes 23 s on average
    time.now += 30
    assert clock.stepped(3)


def test_reports_name_the_stage_and_the_time_left() -> None:
    time, steps = Time(), list[TrainingStep]()
    clock = TrainingClock("memorise", None, steps.append, time)
    clock.start(4, 10)  # a resumed run
    time.now += 3
    clock.stepped(5)
    assert steps == [TrainingStep("memorise", 4, 10, None), TrainingStep("memorise", 5, 10, 15.0)]


def test_steps_that_become_far_longer_end_within_the_limit() -> None:
    now = [0.0]
    clock = TrainingClock("chains", 65.0, now=lambda: now[0])
    clock.start(0, 100)
    for step in range(1, 100):
        now[0] += 1.0 if step <= 10 else 20.0
        if clock.stepped(step):
            break
    with clock.measuring():
        now[0] += 6.0
    assert (step, clock.time_is_up) == (12, True)
    assert clock.seconds <= 65.0
