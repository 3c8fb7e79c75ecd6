"""The time of a training."""

from grls.train.core.clock import TrainingClock, TrainingStep


def test_it_ends_where_another_step_and_a_measurement_do_not_fit() -> None:
    now = [100.0]
    clock = TrainingClock("chains", 20, now=lambda: now[0])
    now[0] += 4  # reading the data
    clock.start(0, 10)
    now[0] += 2
    assert not clock.stepped(1)
    with clock.measuring():
        now[0] += 5
    now[0] += 2
    assert not clock.stepped(2)  # at 13 s: 2 s for a step and 5 s for a measurement fit exactly
    now[0] += 2
    assert clock.stepped(3)
    assert clock.time_is_up
    assert clock.seconds == 15


def test_a_tenth_of_the_time_is_kept_for_the_first_measurement() -> None:
    now = [0.0]
    clock = TrainingClock("chains", 100, now=lambda: now[0])
    clock.start(0, None)
    now[0] += 45
    assert not clock.stepped(1)  # 45 s for another step and 10 s for dev fit exactly
    now[0] += 1
    assert clock.stepped(2) is False  # a step takes 23 s on average
    now[0] += 30
    assert clock.stepped(3)


def test_reports_name_the_stage_and_the_time_left() -> None:
    now, steps = [0.0], list[TrainingStep]()
    clock = TrainingClock("memorise", None, steps.append, lambda: now[0])
    clock.start(4, 10)  # a resumed run
    now[0] += 3
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


def test_a_meter_may_shorten_the_limit_and_a_slower_machine_measures_longer() -> None:
    now = [0.0]
    clock = TrainingClock("chains", 1000.0, lambda step: 30.0 if step.step == 2 else None, lambda: now[0])
    clock.start(0, 100)
    now[0] = 10.0
    assert not clock.stepped(1)
    with clock.measuring():
        now[0] += 5.0
    now[0] += 10.0
    assert not clock.stepped(2)  # 30 s are left from here
    now[0] += 10.0
    assert not clock.stepped(3)
    now[0] += 8.0
    assert clock.stepped(4)  # another step and the measurement would not fit
    slow = TrainingClock("chains", 90.0, now=lambda: now[0])
    now[0] = slow._begun
    slow.start(0, 100)
    for step in (1, 2):
        now[0] += 5.0
        assert not slow.stepped(step)
    with slow.measuring():
        now[0] += 10.0
    now[0] += 25.0
    assert slow.stepped(3)  # 45 + 25 + 10 would fit, but the measurement gets slower as well
