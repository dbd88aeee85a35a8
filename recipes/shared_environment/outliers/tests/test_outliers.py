def test_names_the_places_of_far_values(triton_model):
    assert triton_model("outliers").infer(SIGNAL=[5, 6, -90, 5, 6, 80, 7])["PLACES"].tolist() == [2, 5]


def test_equal_values_have_no_outliers(triton_model):
    assert triton_model("outliers").infer(SIGNAL=[3] * 10)["PLACES"].tolist() == []
